"""The published counts of the MIMIC-III models, from built models."""

import pytest

from harness.planning.plan import make_plan
from harness.planning.suite import load_suite
from harness.trials.parameters import run_parameters

PUBLISHED = {  # ButterflyFlow (Meng et al., ICML 2022), number of parameters on MIMIC-III
    ("conv1x1", 64): (36_032, 35_952),
    ("emerging", 64): (42_576, 39_248),
    ("periodic", 64): (39_312, 39_232),
    ("woodbury", 64): (48_576, 48_496),
    ("butterfly", 16): (15_280, 15_200),
    ("butterfly", 64): (48_304, None),  # at equal width the order turns round
    ("conv1x1", 16): (3_008, None),
}


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    plan = make_plan(load_suite("parameters"), profile="quick", device="cpu")
    rows = [
        run_parameters(trial, None, tmp_path_factory.mktemp("out"), lambda *_: None).rows[0] for trial in plan.trials
    ]
    return {(row["layer"], row["width"]): row for row in rows}


@pytest.mark.parametrize("model", PUBLISHED, ids=lambda model: f"{model[0]}-{model[1]}")
def test_count(counts, model):
    total, free = PUBLISHED[model]
    assert counts[model]["parameters"] == total
    if free is not None:
        assert counts[model]["masked_free"] == free


def test_every_layer_at_both_widths(counts):
    assert {width for _, width in counts} == {16, 64} and len(counts) == 10
