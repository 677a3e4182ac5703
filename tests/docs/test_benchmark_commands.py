"""The commands of pytest-benchmark in docs/how-to/results.md save times, compare them and fail on slower ones."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "results.md"
BODY = "import time\n\ndef test_it(benchmark):\n    benchmark.pedantic(time.sleep, ({seconds},), rounds=5)\n"


def test_commands_fail_on_a_slower_median_and_compare_the_saved_times(tmp_path):
    """Run the commands on a benchmark that sleeps, the second time forty times as long."""
    lines = re.findall(r"^pytest tests/benchmarks (--benchmark-only .*)$", PAGE.read_text(), re.M)
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*command):
        command = [sys.executable, "-m", *command]
        return subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=60)

    ends = []
    for line, seconds in zip(lines, (0.001, 0.04), strict=True):
        (tmp_path / "test_sleep.py").write_text(BODY.format(seconds=seconds))
        ends.append(run("pytest", "-q", "-p", "no:cacheprovider", *line.split()))
    assert ends[0].returncode == 0, ends[0].stdout + ends[0].stderr
    assert ends[1].returncode == 1 and "Performance has regressed" in ends[1].stdout + ends[1].stderr
    compared = run("pytest_benchmark", "compare")
    assert compared.returncode == 0 and "test_it" in compared.stdout
