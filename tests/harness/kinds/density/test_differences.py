"""The table of leads over two 1x1 convolutions and of the way to the oracle; the ranking figure, and the answer."""

import math
import random
import statistics

import pytest
from scipy import stats

from harness.kinds.density.figures import ranking
from harness.kinds.density.figures.ranking import figures
from harness.kinds.density.tables.differences import leads_table
from harness.kinds.density.trial import DensityTrial
from harness.planning.settle import load_suite, settle
from harness.reporting.frame import Results
from harness.reporting.report import ReportedResults

CONTROL = "conv1x1-twice"


def value_of(row, seed):
    """Return a likelihood that is unrelated to any other; the oracle's is the lowest."""
    return random.Random(f"{row}{seed}").uniform(1, 2) - 2 * (row == "oracle")


@pytest.fixture
def table_of(recorded):
    """Return a function of seeds that makes the table of the smoke profile; `measures` are changed for the oracle."""

    def table(seeds, only=(), **measures):
        plan, trials = settle(load_suite("which_layer"), "smoke", "cpu", seeds=seeds, only=only).plan()
        trials = [trial for trial in trials if isinstance(trial, DensityTrial)]
        records = [
            recorded(trial, value_of(trial.layer.row, trial.seed), **(measures if trial.layer.oracle else {}))
            for trial in trials
        ]
        return leads_table(Results.of(plan.limited(trials), records))

    return table


def numbers(cell):
    """Return mean, low and high of a cell."""
    return [float(part.strip("[],")) for part in cell.partition(", p")[0].split()]


def student(values, pairs):
    interval = stats.t.interval(1 - 0.05 / pairs, len(values) - 1, statistics.fmean(values), stats.sem(values))
    return [statistics.fmean(values), *interval]


def test_leads_and_shares_are_of_paired_seeds_with_their_intervals(table_of):
    table = table_of(3)
    assert table.header == ("layer", "permuted-digits, bits/dim ↑", "permuted-digits, % of the way to the oracle ↑")
    layers = [row for row, *_ in table.rows]
    assert layers[:2] == ["conv1x1", "emerging"] and not {CONTROL, "oracle"} & set(layers)
    pairs = math.comb(len(layers) + 1, 2)  # with the control; no pair is shown, so all are corrected for all
    for row, lead, share in table.rows:
        leads = [value_of(CONTROL, seed) - value_of(row, seed) for seed in range(3)]
        ways = [value_of(CONTROL, seed) - value_of("oracle", seed) for seed in range(3)]
        assert numbers(lead) == pytest.approx(student(leads, pairs), abs=6e-4), row
        parts = [100 * a / b for a, b in zip(leads, ways, strict=True)]
        assert numbers(share) == pytest.approx(student(parts, pairs), abs=0.6), row
    assert table.caption.count("[Holm-adjusted Student's 95 % interval]") == 2
    assert "100 is as good as knowing" in table.caption


def test_eight_seeds_have_a_test_and_an_oracle_that_fails_bounds_nothing(table_of):
    table = table_of(8, only=[f"layer={CONTROL},emerging,woodbury,oracle"])
    assert all(", p " in lead for _, lead, _ in table.rows)
    assert "mean [bootstrap 95 % interval, p as in the differences] over" in table.caption
    assert len(table_of(3, audit="failed").header) == 2
    assert len(table_of(3, bits_per_dim=1.5).header) == 2, "it is worse than the control on some seed"
    assert table_of(3, only=["layer=emerging,woodbury"]) is None


def test_the_best_row_is_in_the_panel_however_far_ahead(recorded):
    plan, trials = settle(load_suite("which_layer"), "smoke", "cpu", seeds=3).plan()
    trials = [trial for trial in trials if isinstance(trial, DensityTrial)]
    means = {row: 5 + 0.01 * number for number, row in enumerate(plan.rows)} | {"butterfly": 1.0}
    records = [recorded(trial, means[trial.layer.row] + 0.001 * trial.seed**2) for trial in trials]
    (axes,) = figures(Results.of(plan.limited(trials), records))["ranking"].axes
    low, high = axes.get_xlim()
    assert low < 0 and high > 4.1, "0 is the best row, the others are 4 and more behind"


@pytest.mark.parametrize("seeds", [3, 8])
def test_the_answer_and_the_figure_say_the_same_of_a_noisy_layer_before_a_steady_one(many_seeds, seeds):
    """The noisy one has the higher mean, and is not shown to be behind; so the other one is not "next" to it."""
    plan, records = many_seeds(seeds)
    best, steady, noisy = plan.rows
    values = {best: 2.0, steady: 2.05, noisy: 2.1}
    for record in records:
        row, seed = record.trial["layer"]["row"], record.trial["seed"]
        spread = 0.4 if row == noisy else 0.002
        record.rows[0]["bits_per_dim"] = values[row] + spread * ((seed % 3) - 1) * (row != best)
    results = ReportedResults.of(plan, records)
    answer = results.report.answer
    finding = next(finding for finding in answer.findings if finding.subject == "digits")
    _, close, apart = finding.text.removesuffix(".").split("; ")
    assert finding.verdict == "2 of 3 are left, 1 is shown to be behind"
    remark = dict(answer.remarks)["Equal means"][0]
    assert remark.startswith("Shown to be behind although the mean is not higher: ")
    assert f"{steady} on digits, and not {noisy}." in remark
    assert close.startswith(f"not shown to be behind: {noisy} +") and steady not in close
    assert apart.startswith(f"shown to be behind: {steady} +0.0") and noisy not in apart
    panel = ranking.figures(results)["ranking"].axes[0]
    names = [label.get_text() for label in panel.get_yticklabels()]
    assert names == [best, steady, noisy], "by their means"
    shaded = [names[round(patch.get_y() + patch.get_height() / 2)] for patch in panel.patches]
    assert shaded == [best, noisy], "the layers that the answer does not show to be behind"
