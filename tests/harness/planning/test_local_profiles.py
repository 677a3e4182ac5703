"""The local profiles of suites: their rows and data sets, and the real data."""

import pytest

from harness.datasets import Store, find_dataset
from harness.planning.settle import load_suite, settle

PERMUTED = ("mnist", "cifar10-subset", "tiny-imagenet")
FLOWS = {"maf", "realnvp", "iresnet", "residual_flow", "idensenet"}
ROWS = {"conv1x1", "emerging", "periodic", "woodbury", "butterfly", "butterfly-pixels"}


@pytest.mark.parametrize(
    ("suite", "columns", "rows", "seeds"),
    [
        ("density", {"mnist", "cifar10-subset", "tiny-imagenet"}, ROWS | FLOWS, 1),
        ("galaxy", {"galaxy-zoo"}, ROWS, 1),
        ("permuted", {f"permuted-{name}" for name in PERMUTED}, ROWS - {"periodic"} | {"oracle"}, 3),
    ],
)
def test_a_local_profile_compares_its_rows_on_equal_terms(suite, columns, rows, seeds):
    plan = settle(load_suite(suite), "local", "cpu").plan()[0]
    assert (set(plan.columns), set(plan.rows), len(plan.seeds)) == (columns, rows, seeds)
    for column in columns:
        trials = [trial for trial in plan.trials if trial.kind == "density" and trial.data.label == column]
        assert len({trial.training for trial in trials}) == 1, "one budget for all rows"
        layers = [trial for trial in trials if not trial.layer.baseline]
        assert len({trial.flow for trial in layers}) == 1, "one backbone for all layers"
        assert len({trial.data for trial in trials}) == 1


WHICH_LAYER = {  # data set -> event shape, the fewest test events
    "ecg": ((2, 512), 250),
    "mimic-s00001": ((2, 256), 1000),
    "mimic-s25047": ((2, 256), 300),
    "spoken-digits": ((1, 1024), 500),
    "load": ((7, 96), 36),
    "icu": ((2, 256), 70),
    "galaxies": ((3, 16, 16), 111),
    "mnist-14": ((1, 14, 14), 1000),
    "permuted-mnist-14": ((1, 14, 14), 1000),
    "cifar10-16": ((3, 16, 16), 1000),
    "permuted-cifar10-16": ((3, 16, 16), 1000),
    "tiny-imagenet-16": ((3, 16, 16), 1000),
}


def test_which_layer_repeats_every_row_on_twelve_data_sets():
    plan = settle(load_suite("which_layer"), "local", "cpu").plan()[0]
    trials = [trial for trial in plan.trials if trial.kind == "density"]
    assert list(plan.columns) == list(WHICH_LAYER) and len(plan.rows) == 10
    repeated = {(trial.data.label, trial.layer.row, trial.repetition) for trial in trials}
    assert len(trials) == len(repeated) == 12 * 10 * 8
    assert len({(len(trial.tuning.candidates), trial.tuning.steps) for trial in trials}) == 1, "tuned alike"
    for column in plan.columns:
        here = [trial for trial in trials if trial.data.label == column]
        assert len({trial.training for trial in here}) == len({trial.flow for trial in here}) == 1


def test_the_data_sets_of_which_layer_are_in_the_data_root(data_root):
    settled = settle(load_suite("which_layer"), "local", "cpu", only=["repetition=0"])
    for data in settled.data:
        shape, fewest = WHICH_LAYER[data.label]
        splits = find_dataset(data.name).loaded(Store.at(data_root, offline=True), dict(data.options))
        assert splits.shape == shape and len(splits.test) >= fewest and splits.lattice, data.label
