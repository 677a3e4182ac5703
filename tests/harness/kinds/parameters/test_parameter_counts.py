"""Built models have the published parameter counts on MIMIC-III and CIFAR-10."""

import pandas as pd
import pytest

from harness.kinds.parameters.trial import run as run_parameters
from harness.planning.settle import load_suite, settle
from harness.reporting.frame import Results

BACKBONE = 44_175_264

PUBLISHED = {  # ButterflyFlow (Meng et al., ICML 2022), number of parameters on MIMIC-III; its code on CIFAR-10
    ("mimic", "conv1x1", 64): (36_032, 35_952),
    ("mimic", "emerging", 64): (42_576, 39_248),
    ("mimic", "periodic", 64): (39_312, 39_232),
    ("mimic", "woodbury", 64): (48_576, 48_496),
    ("mimic", "butterfly", 16): (15_280, 15_200),
    ("cifar10", "conv1x1", 512): (BACKBONE, BACKBONE),
    ("cifar10", "butterfly", 512): (BACKBONE + 202_752, None),
    ("permuted-cifar10", "conv1x1", 512): (BACKBONE, BACKBONE),
    ("permuted-cifar10", "butterfly", 512): (BACKBONE + 3_333_120, None),
}

OTHERS = {
    ("mimic", "butterfly", 64): 48_304,  # at equal width the order is reversed
    ("mimic", "conv1x1", 16): 3_008,
}


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    """Return {(data set, layer, width): row of results.csv}."""
    plan = settle(load_suite("parameters"), profile="quick", device="cpu").plan()[0]
    out = tmp_path_factory.mktemp("out")
    wanted = PUBLISHED.keys() | OTHERS.keys()
    records = [
        run_parameters(trial, None, out, lambda *_: None)
        for trial in plan.trials
        if trial.label == "mimic" or (trial.label, trial.layer.row, trial.flow.width) in wanted
    ]
    lines = Results.of(plan, records).table.to_dict("records")
    return {(line["dataset"], line["layer"], line["width"]): line for line in lines}


def test_counts_of_every_layer_at_every_width_are_the_published_ones(counts):
    for model, (total, free) in PUBLISHED.items():
        line = counts[model]
        assert (line["parameters"], line["published"]) == (total, total) and free in (None, line["masked_free"]), model
    assert {model: counts[model]["parameters"] for model in OTHERS} == OTHERS
    assert {model for model, line in counts.items() if not pd.isna(line["published"])} == PUBLISHED.keys()
    rows = {row for _, row, _ in counts}
    widths = {(column, width) for column, _, width in counts}
    assert widths == {("mimic", 16), ("mimic", 64), ("cifar10", 512), ("permuted-cifar10", 512)}
    assert len(rows) == 5 and len(counts) == len(rows) * len(widths)
