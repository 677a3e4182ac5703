"""The ranking figure of made-up likelihoods."""

from harness.kinds.density.figures.ranking import figures
from harness.kinds.density.trial import DensityTrial
from harness.planning.settle import load_suite, settle
from harness.reporting.frame import Results


def test_the_best_row_is_in_the_panel_however_far_ahead(recorded):
    plan, trials = settle(load_suite("which_layer"), "smoke", "cpu", seeds=3).plan()
    trials = [trial for trial in trials if isinstance(trial, DensityTrial)]
    means = {row: 5 + 0.01 * number for number, row in enumerate(plan.rows)} | {"butterfly": 1.0}
    records = [recorded(trial, means[trial.layer.row] + 0.001 * trial.seed**2) for trial in trials]
    (axes,) = figures(Results.of(plan.limited(trials), records))["ranking"].axes
    low, high = axes.get_xlim()
    assert low < 0 and high > 4.1, "0 is the best row, the others are 4 and more behind"
