"""`harness.load_results` gives a typed frame."""

import re
import subprocess
import sys
from pathlib import Path

import harness

PROJECT = Path(__file__).resolve().parents[3]


def test_records_give_a_typed_frame(density_run, write_run):
    frame = harness.load_results(write_run(*density_run))
    assert str(frame.dtypes["bits_per_dim"]) == "Float64" and str(frame.dtypes["seed"]) == "Int64"
    assert len(frame[frame.operation.isna()]) == 18


def test_the_example_of_the_documentation_runs():
    """Run the example unchanged, on the committed report that it names."""
    page = (PROJECT / "docs" / "how-to" / "results.md").read_text()
    (code,) = re.findall(r"```python\n(from harness import load_results\n.*?)```", page, re.S)
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "butterfly" in done.stdout and "digits" in done.stdout
