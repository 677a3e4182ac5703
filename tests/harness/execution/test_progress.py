"""The progress of a report."""

from harness.execution import progress
from harness.execution.progress import ReportProgress


def test_there_is_a_line_after_every_period(monkeypatch, capsys):
    times = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: times[-1])
    with ReportProgress("mine") as shown:
        shown(0.1, "plan")
        times.append(times[-1] + progress.LINE_SECONDS)
        shown(0.15, "tables")
        shown(0.4, "figures, 1 of 13 files")
    assert capsys.readouterr() == ("", "report of mine, 15%: tables\n")
