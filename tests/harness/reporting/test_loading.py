"""`harness.load_results` gives the same frame from records and from their results.csv."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import harness
from harness.core.errors import UserError
from harness.reporting.report import write_report

PROJECT = Path(__file__).resolve().parents[3]


def test_records_and_their_table_give_the_same_typed_frame(density_run, write_run):
    folder = write_run(*density_run)
    write_report(folder)
    frame = harness.load_results(folder)
    assert str(frame.dtypes["bits_per_dim"]) == "Float64" and str(frame.dtypes["seed"]) == "Int64"
    assert len(frame[frame.operation.isna()]) == 18
    (folder / "plan.json").unlink()
    pd.testing.assert_frame_equal(harness.load_results(str(folder)), frame)


def test_a_folder_without_readable_results_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match=r"no plan\.json"):
        harness.load_results(tmp_path)
    (tmp_path / "results.csv").write_text("seed\nthree\n")
    with pytest.raises(UserError, match=r"results\.csv: not readable"):
        harness.load_results(tmp_path)


def test_the_example_of_the_documentation_runs():
    """Run the example unchanged, on the committed report that it names."""
    page = (PROJECT / "docs" / "how-to" / "results.md").read_text()
    (code,) = re.findall(r"```python\n(from harness import load_results\n.*?)```", page, re.S)
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "butterfly" in done.stdout and "digits" in done.stdout
