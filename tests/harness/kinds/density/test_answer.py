"""The answer above a density report: who leads, by how much, and where no order is given."""

import pytest

from harness.kinds.density.figures import ranking
from harness.reporting.frame import Results
from harness.reporting.report import ReportedResults


def findings(run):
    result = ReportedResults.of(*run).report.answer
    return {each.subject: each for each in result.findings}, dict(result.remarks)


def test_a_lead_has_its_interval_and_its_test(many_seeds):
    by_subject, remarks = findings(many_seeds(8))
    assert by_subject["digits"].verdict == "significant lead"
    assert by_subject["digits"].text == (
        "conv1x1 2.035 bits/dim, lowest in 8 of 8 seeds; "
        "shown to be behind: my_layer & co +1.000 [+0.990, +1.010], p < 0.001, and 1 more."
    )
    assert by_subject["waveforms"].verdict == "2 of 3 are left, 1 is shown to be behind"
    first, close, after = by_subject["waveforms"].text.split("; ")
    assert first.startswith("my_layer & co -2.") and after.startswith("shown to be behind: conv1x1 +")
    assert close == "not shown to be behind: <script> +0.002 [-0.007, +0.012], p 0.685"
    assert remarks["Tuned"] == (
        "Validation chose each layer's settings among 4 candidates.",
        "Settings: learning rate.",
    )
    assert "paired t test" in remarks["Intervals"][1]


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


@pytest.mark.parametrize(("seeds", "verdict"), [(1, "not ranked"), (2, "not ranked"), (3, "lead, no test")])
def test_few_seeds_give_no_test_and_fewer_no_order(many_seeds, seeds, verdict):
    by_subject, remarks = findings(many_seeds(seeds))
    assert by_subject["digits"].verdict == verdict
    assert any("no test below 8 seeds" in text for text in remarks["Not said"]) == (seeds == 3)
    assert any(text.startswith("Holm-adjusted: ") for text in remarks.get("Intervals", ())) == (seeds == 3)


def test_what_was_not_tuned_is_in_no_order(many_seeds, replanned):
    run = many_seeds(8)
    by_subject, remarks = findings(replanned(run, lambda trial: {"tuning": None}))
    assert {each.verdict for each in by_subject.values()} == {"not ranked"}
    assert all(each.text == "Nothing was tuned, so no order is given." for each in by_subject.values())
    assert remarks["Tuned"][0].startswith("Nothing was tuned")
    exempt = replanned(run, lambda trial: {"tuning": None} if trial.layer.row == "conv1x1" else {})
    by_subject, remarks = findings(exempt)
    assert by_subject["digits"].text.startswith("my_layer & co 3.0")
    assert "Not ranked: conv1x1 on digits and waveforms (not tuned)." in remarks["Not said"]
