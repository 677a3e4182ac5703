"""The page about one layer: its check, and its rows of reports."""

import shlex

import pytest

from harness.checking import isolated
from harness.checking.events import Done
from harness.checking.report import CheckReport
from harness.cli.parser import main
from harness.reporting.tables.rendering import escape_markdown


@pytest.fixture
def checks(monkeypatch):
    """Return the layers that were checked, each found right at once."""
    seen = []

    def check(spec, options, folder, show):
        seen.append(spec)
        report = CheckReport(spec, rules=())
        report.take(Done())
        return report

    monkeypatch.setattr(isolated, "check_in_process", check)
    return seen


def test_a_page_has_the_check_and_the_rows_of_the_layer_and_of_the_control(density_run, write_run, checks, capsys):
    folder = write_run(*density_run)
    plan, _ = density_run
    row, over, other = plan.rows[:3]
    assert main(["card", row, str(folder.parent), "--over", over]) == 0 and checks == [row]
    text = capsys.readouterr().out
    assert text.startswith(f"# {row}\n\n```\n{row}: ") and f"{row}: ok" in text
    tables = text.partition(f"## {plan.title}")[2]
    count = {name: tables.count(f"\n| {escape_markdown(name)} ") for name in (row, over, other)}
    assert count[row] == count[over] > 0 == count[other]
    assert plan.digest in tables and f"card {row} {folder.parent} --over {shlex.quote(over)}" in tables


def test_a_layer_that_no_run_has_is_an_error(density_run, write_run, checks, capsys):
    folder = write_run(*density_run)
    assert main(["card", "mine.py:Scale", str(folder)]) == 2 and not checks
    assert "no table has the row Scale" in capsys.readouterr().err


def test_a_page_has_the_leads_over_the_control_and_the_costs(density_run, replanned, write_run, checks, capsys):
    control, row, _ = density_run[0].rows
    twice = {"layer.keep_mixer": True}
    run = replanned(density_run, lambda trial: twice if trial.identity.get("layer") == control else {})
    folder = write_run(*run)
    assert main(["card", row, str(folder), "--over", control]) == 0
    text = capsys.readouterr().out
    assert f"Lead over {control}" in text and "Parameters: of the whole flow" in text
