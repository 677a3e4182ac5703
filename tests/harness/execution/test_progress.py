"""The progress of a report."""

import pytest

from harness.execution import progress
from harness.execution.progress import ReportProgress


@pytest.fixture
def clock(monkeypatch):
    """Return a list whose last number is the time."""
    times = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: times[-1])
    return times


def test_there_is_a_line_after_every_period(clock, capsys):
    with ReportProgress("mine") as shown:
        shown(0.0, "plan")
        clock.append(clock[-1] + progress.LINE_SECONDS)
        shown(0.15, "tables")
        shown(0.4, "figures, 1 of 13 files")
    assert capsys.readouterr() == ("", "report of mine, 15%: tables\n")


def test_a_short_report_prints_no_progress(clock, capsys):
    with ReportProgress("mine") as shown:
        shown(0.9, "page")
    assert capsys.readouterr() == ("", "")
