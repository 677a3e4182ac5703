"""Profiles of packaged suites: `paper` is ButterflyFlow's table (Meng et al., ICML 2022, appendix), `local` is fair."""

from functools import cache

import pytest

from harness.datasets import Store, find_dataset
from harness.planning.settle import load_suite, settle

# suite, data set: levels, steps, coupling channels, butterfly levels, bi-direction, average, gamma, initialisation
TABLE = {
    ("density", "cifar10"): (3, 32, 512, 1, False, "none", None, "identity"),
    ("density", "imagenet32"): (3, 32, 512, 1, False, "none", None, "identity"),
    ("density", "mnist"): (2, 20, 512, 1, False, "none", None, "identity"),
    ("permuted", "permuted-cifar10"): (3, 32, 512, 10, False, "separate", 0.99, "rotation"),
    ("permuted", "permuted-imagenet32"): (3, 32, 512, 10, True, "separate", 0.99, "rotation"),
    ("permuted", "permuted-mnist"): (2, 20, 512, (9, 8, 4), True, "separate", 0.996, "identity"),
    ("galaxy", "galaxy"): (2, 8, 512, 2, False, "separate", 0.996, "identity"),
    **{("mimic", f"patient {number}"): (2, 2, 16, 10, False, "none", None, "rotation") for number in (1, 2, 3)},
}
DIM = {"cifar10": 3072, "imagenet32": 3072, "mnist": 784, "galaxy": 12288, "mimic": 2048}
BATCH = {"galaxy": 64, "mimic": 1024}
AUGMENTATION = {"cifar10": "crop_flip", "imagenet32": "crop_flip", "galaxy": "dihedral_shift"}


@cache  # planning takes seconds
def plan(suite, profile="paper", **changes):
    return settle(load_suite(suite), profile, "cpu", **changes).plan()[0]


def by_row(suite, column):
    return {trial.layer.row: trial for trial in plan(suite, seeds=1).trials if trial.data.label == column}


@pytest.mark.parametrize(("suite", "column"), TABLE)
def test_the_butterfly_has_the_published_architecture(suite, column):
    trial = by_row(suite, column)["butterfly"]
    flow, training, options = trial.flow, trial.training, dict(trial.layer.options)
    architecture = (flow.levels, flow.steps, flow.width, options["levels"], options.get("bi_direction", False))
    averages = (training.ema, training.layer_decay, options.get("initialisation", "identity"))
    assert (*architecture, *averages) == TABLE[suite, column]
    assert options["full_depth_at"] == DIM[trial.data.name]
    assert options.get("shared", False) == (suite == "mimic")
    assert options.get("partition") == ((512, 256, 16) if column == "permuted-mnist" else None)
    assert (trial.data.permute is not None) == (suite == "permuted")
    assert trial.data.preprocessing == ("logit" if trial.data.name == "mnist" else "scale")


@pytest.mark.parametrize(("suite", "column"), TABLE)
def test_training_and_backbone_of_every_row(suite, column):
    rows = by_row(suite, column)
    for row, trial in rows.items():
        training = trial.training
        assert training.batch_size == BATCH.get(trial.data.name, 128)
        assert trial.data.augmentation == AUGMENTATION.get(trial.data.name, "none")
        assert training.learning_rate == (1e-4 if suite == "mimic" else 1e-3)
        assert (training.warmup, training.decay, training.ema_decay) == (10, 0.999997, 0.999)
        if not row.startswith("butterfly"):  # published averages are for butterfly layers only
            assert (training.ema, training.layer_decay) == ("none", None)
            width = {"maf": 1024, "realnvp": 64, "idensenet": 172}  # baselines: from their own papers
            assert trial.flow.width == (64 if suite == "mimic" else width.get(row, 512))
        assert trial.flow.split_step == (suite != "mimic")
        assert trial.flow.mixer == ("plu" if suite == "mimic" else "dense")
    assert dict(rows["conv1x1"].layer.options)["parameterisation"] == rows["conv1x1"].flow.mixer
    oracle = rows.get("oracle")
    assert (oracle is not None) == (suite == "permuted")
    if oracle is not None:  # except for the permutation it equals the first row
        glow = rows["conv1x1"]
        same = oracle.layer.model_copy(update={"oracle": False, "row": glow.layer.row})
        assert oracle.layer.oracle and oracle.model_copy(update={"layer": same}) == glow


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
    made = plan(suite, "local")
    assert (set(made.columns), set(made.rows), len(made.seeds)) == (columns, rows, seeds)
    for column in columns:
        trials = [trial for trial in made.trials if trial.kind == "density" and trial.data.label == column]
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
    made = plan("which_layer", "local")
    trials = [trial for trial in made.trials if trial.kind == "density"]
    assert list(made.columns) == list(WHICH_LAYER) and len(made.rows) == 10
    repeated = {(trial.data.label, trial.layer.row, trial.repetition) for trial in trials}
    assert len(trials) == len(repeated) == 12 * 10 * 8
    assert len({(len(trial.tuning.candidates), trial.tuning.steps) for trial in trials}) == 1, "tuned alike"
    for column in made.columns:
        here = [trial for trial in trials if trial.data.label == column]
        assert len({trial.training for trial in here}) == len({trial.flow for trial in here}) == 1


def test_the_data_sets_of_which_layer_are_in_the_data_root(data_root):
    settled = settle(load_suite("which_layer"), "local", "cpu", only=["repetition=0"])
    for data in settled.data:
        shape, fewest = WHICH_LAYER[data.label]
        splits = find_dataset(data.name).loaded(Store.at(data_root, offline=True), dict(data.options))
        assert splits.shape == shape and len(splits.test) >= fewest and splits.lattice, data.label
