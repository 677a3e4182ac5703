"""The answer above times: the fastest layers, where their spreads tell them apart."""

from harness.reporting.frame import Results
from harness.reporting.report import report_of


def test_a_layer_is_fastest_where_the_spreads_are_apart(runtime_run):
    plan, records = runtime_run
    found = {each.subject: each for each in report_of(Results.of(plan, records)).answer.findings}
    first = found["spatial: forward + backward, 3×16×16, batch 4"]
    assert first.verdict == "clearly fastest"
    assert first.text == "conv1x1 1.00 ms (0.995 to 1.00); next my_layer & co 2.00 ms (2.00 to 2.00)."
    assert {subject.split(":")[0] for subject in found} == {"spatial", "batch"}


def test_layers_whose_spreads_meet_share_the_lead(runtime_run):
    plan, records = runtime_run
    for row in records[2].rows:  # the largest shape
        row["iqr_ms"] = 0.2 * row["median_ms"] if row["layer"] == "conv1x1" else row["median_ms"] * 1.2
    finding = report_of(Results.of(plan, records)).answer.findings[0]
    assert finding.verdict == "no single fastest"
    assert "; no clear difference from my_layer & co 2.00 ms (0.800 to 3.20) † " in finding.text


def test_without_times_there_is_no_answer(runtime_run):
    assert report_of(Results.of(runtime_run[0], [])).answer is None
