"""The answer above a density report: who leads, by how much, and where no order is given."""

import pytest

from harness.kinds.density.figures import ranking
from harness.reporting.frame import Results
from harness.reporting.report import ReportedResults


def findings(run):
    result = ReportedResults.of(*run).report.answer
    return {each.subject: each for each in result.findings}, dict(result.remarks)


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
    results = Results.of(plan, records)
    finding = findings((plan, records))[0]["digits"]
    _, close, apart = finding.text.removesuffix(".").split("; ")
    assert finding.verdict == "2 of 3 are left, 1 is shown to be behind"
    remark = dict(ReportedResults.of(plan, records).report.answer.remarks).get("Equal means", ("",))[0]
    assert remark.startswith("Shown to be behind although the mean is not higher: ")
    assert f"{steady} on digits, and not {noisy}." in remark
    assert close.startswith(f"not shown to be behind: {noisy} +") and steady not in close
    assert apart.startswith(f"shown to be behind: {steady} +0.0") and noisy not in apart
    panel = ranking.figures(results)["ranking"].axes[0]
    names = [label.get_text() for label in panel.get_yticklabels()]
    assert names == [best, steady, noisy], "by their means"
    shaded = [names[round(patch.get_y() + patch.get_height() / 2)] for patch in panel.patches]
    assert shaded == [best, noisy], "the layers that the answer does not show to be behind"
