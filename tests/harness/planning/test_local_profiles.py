"""The local profiles of the image suites: their rows and data sets, and a trial on the real data."""

import numpy as np
import pytest

from flows.baselines import BASELINES
from harness.datasets import Store, find_dataset
from harness.kinds.density.run import run as run_density
from harness.planning.settle import load_suite, settle

PERMUTED = ("mnist", "cifar10-subset", "tiny-imagenet")
ROWS = {"conv1x1", "emerging", "periodic", "woodbury", "butterfly", "butterfly-pixels"}


@pytest.mark.parametrize(
    ("suite", "columns", "rows", "seeds"),
    [
        ("density", {"mnist", "cifar10-subset", "tiny-imagenet"}, ROWS | set(BASELINES), 1),
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


@pytest.mark.parametrize(
    ("suite", "row", "shape", "splits"),
    [
        ("permuted", "oracle", (1, 28, 28), "59,000 train, 1,000 validation, 10 test"),
        ("galaxy", "conv1x1", (3, 32, 32), "420 train, 60 validation, 10 test"),
    ],
)
def test_a_trial_on_real_data(suite, row, shape, splits, data_root, tmp_path):
    column = {"permuted": "permuted-mnist", "galaxy": "galaxy-zoo"}[suite]
    small = [
        "tuning.candidates=0",
        "training.steps=1",
        "training.evaluate_every=1",
        "training.batch_size=8",
        f"datasets.{column}.options.test=10",
    ]
    only = [f"layer={row}", f"dataset={column}"]
    small += ["flow.steps=1", "flow.width=4", "flow.levels=1"]
    _, (trial,) = settle(load_suite(suite), "local", "cpu", seeds=1, settings=small, only=only).plan()
    find_dataset(trial.data.name).check(Store.at(data_root, offline=True), dict(trial.data.options))
    record = run_density(trial, data_root, tmp_path, lambda done, text: None)
    assert (record.status, record.audit["verdict"]) == ("ok", "passed"), record.reason or record.audit["reasons"]
    assert record.notes["splits"] == splits and len(record.notes["checksum"]) == 64
    arrays = np.load(tmp_path / "records" / record.arrays)
    assert arrays["data"].shape == arrays["samples"].shape == (10, *shape)
