import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli.parser import main
from harness.core.errors import UserError
from harness.reporting.benchmarks import benchmark_figure, benchmark_table, distinct, read_benchmarks
from harness.reporting.report import write_report

PROJECT = Path(__file__).resolve().parents[3]


def saved(path, medians, cpu="A Processor", **more):
    """Write a file as pytest-benchmark does, with fields that the report ignores; return its path."""
    benchmarks = [
        {
            "group": group,
            "name": name,
            "fullname": f"test.py::{name}",
            "params": None,
            "stats": {"median": seconds, "iqr": seconds / 10, "rounds": 7, "min": 0.0, "outliers": "1;2"},
        }
        for (group, name), seconds in medians.items()
    ]
    content = {
        "machine_info": {"node": "secret-host", "cpu": {"brand_raw": cpu}},
        "version": "5.1",
        "benchmarks": benchmarks,
    }
    path.write_text(json.dumps(content | more))
    return path


@pytest.fixture
def files(tmp_path):
    first = {("small", "fast <b>"): 0.001, ("large", "slow"): 0.5, ("small", "slow"): 0.02}
    commit = {"commit_info": {"id": "0123456789abcdef", "dirty": True}}
    return [
        saved(tmp_path / "before.json", first, **commit),
        saved(tmp_path / "after.json", {("small", "slow"): 0.01, (None, "alone"): 0.25}),
    ]


def test_files_are_columns_and_benchmarks_are_grouped(files):
    table = benchmark_table([read_benchmarks(path) for path in files])
    assert table.header == ("group", "benchmark", "before (01234567 and changes)", "after")
    assert table.rows == (
        ("small", "fast <b>", "1.00 (0.100)", "–"),
        ("small", "slow", "20.0 (2.00)", "10.0 (1.00)"),
        ("large", "slow", "500 (50.0)", "–"),
        ("–", "alone", "–", "250 (25.0)"),
    )
    assert "7 to 7 rounds" in table.caption and "A Processor" in table.caption and not table.notes
    assert "secret" not in str(table), "the name of the host is not in the table"


def test_times_of_two_machines_are_noted_as_such(tmp_path):
    cases = {("g", "n"): 1.0}
    paths = [saved(tmp_path / "a.json", cases), saved(tmp_path / "b.json", cases, cpu="Another")]
    notes = benchmark_table([read_benchmarks(path) for path in paths]).notes
    assert notes[:2] == ("a: A Processor", "b: Another") and "different machines" in notes[2]


def test_a_panel_per_group_shows_each_files_medians(files, tmp_path):
    figure = benchmark_figure([read_benchmarks(path) for path in files])
    assert [axes.get_title() for axes in figure.axes if axes.axison] == ["small", "large", "no group"]
    small = figure.axes[0]
    assert [text.get_text() for text in small.get_yticklabels()] == ["fast <b>", "slow"]
    assert [list(container[0].get_xdata()) for container in small.containers] == [[1.0, 20.0], [10.0]]
    assert benchmark_figure([read_benchmarks(saved(tmp_path / "none.json", {}))]) is None


def test_names_in_a_panel_omit_their_common_parts():
    names = [f"test_operation[batch-3x32x32-n1-{row}-forward]" for row in ("butterfly", "conv1x1", "conv1x1 qr")]
    assert distinct(names) == ["butterfly", "conv1x1", "conv1x1 qr"]
    assert distinct(["sort", "sort_all"]) == ["sort", "sort_all"]
    assert distinct(["add_fast", "sort_fast"]) == ["add_fast", "sort_fast"]
    assert distinct(["x" * 50]) == ["…" + "x" * 32]


def test_reports_with_benchmarks_are_reproducible(files, parameters_run, write_run, capsys):
    folder = write_run(*parameters_run)
    command = ["report", str(folder), "--benchmark", *map(str, files)]
    assert main(command) == 0
    assert "Timed by pytest-benchmark" in capsys.readouterr().out
    names = ["table-benchmarks.md", "table-benchmarks.tex", "figures/benchmarks.png", "figures/benchmarks.svg"]
    first = [(folder / name).read_bytes() for name in names]
    assert b"&lt;b>" in first[0] and rb"\textless{}b" in first[1]
    assert main(command) == 0 and [(folder / name).read_bytes() for name in names] == first
    write_report(folder)
    assert not any((folder / name).exists() for name in names), "a report without --benchmark has none"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not of pytest-benchmark"),
        ("[]", "not of pytest-benchmark"),
        ('{"machine_info": {}}', r"benchmarks: Field required"),
        ('{"benchmarks": [{"name": "a", "stats": {"median": 0, "iqr": 0, "rounds": 1}}]}', "stats.median"),
        ('{"benchmarks": [{"name": "a", "stats": {"median": 1, "iqr": NaN, "rounds": 1}}]}', "stats.iqr"),
    ],
)
def test_a_file_of_another_format_is_an_error_that_names_it(tmp_path, content, words):
    path = tmp_path / "odd.json"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"odd\.json: .*{words}.*--benchmark-json"):
        read_benchmarks(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_benchmarks(tmp_path / "none.json")


BODY = "import time\n\ndef test_it(benchmark):\n    benchmark.pedantic(time.sleep, ({seconds},), rounds=5)\n"


def test_commands_of_the_documentation_fail_on_a_slower_median_and_write_a_readable_file(tmp_path):
    """Run both commands on a benchmark that sleeps, the second time forty times as long."""
    page = (PROJECT / "docs" / "how-to" / "results.md").read_text()
    lines = re.findall(r"^pytest tests/benchmarks (--benchmark-only .*)$", page, re.M)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ends = []
    for line, seconds in zip(lines, (0.001, 0.04), strict=True):
        (tmp_path / "test_sleep.py").write_text(BODY.format(seconds=seconds))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *line.split()]
        ends.append(subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=60))
    assert ends[0].returncode == 0, ends[0].stdout + ends[0].stderr
    assert ends[1].returncode == 1 and "Performance has regressed" in ends[1].stdout + ends[1].stderr
    (path,) = tmp_path.glob(".benchmarks/*/*_before.json")
    assert list(read_benchmarks(path).times) == [("", "test_it")]
