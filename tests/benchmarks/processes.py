"""Measure the time of the commands, and of a quickstart beside its training: `peers.py --rows processes`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tabulate import tabulate

COMMANDS = {"validate density": 1.0, "plan density": 1.5, "report quickstart": 3.0, "list layers": 1.0}  # aims, seconds
RUNS = 7
Interval = tuple[float, float]


def run(*command: str) -> float:
    """Return the wall seconds of a command of the project, which finds compiled bytecode after its first call."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "harness", *command], check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - start


def covered(intervals: Iterable[Interval]) -> float:
    """Return the length of the union of intervals."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def outside_training(records: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the seconds of all trials that train, and the part of them that is no training step."""
    trained = [record for record in records if any("train_seconds" in row for row in record["rows"])]
    total = sum(record["seconds"] for record in trained)
    return total, total - sum(row["train_seconds"] for record in trained for row in record["rows"])


def table() -> str:
    """Measure the commands and a quickstart, and return the table."""
    lines = []
    with tempfile.TemporaryDirectory() as out:
        wall = run("run", "quickstart", "--out", out)
        files = list(Path(out, "quickstart", "records").glob("*.json"))
        records = [json.loads(file.read_text()) for file in files]
        total, beside = outside_training(records)
        # A record is written when its trial ends; `started` is rounded to seconds.
        ends = [file.stat().st_mtime for file in files]
        within = covered((end - record["seconds"], end) for end, record in zip(ends, records, strict=True))
        lines.append(
            ("quickstart: trials that train, beside training", f"{beside / total:.0%} of {total:.0f} s", "10 %")
        )
        lines.append(("quickstart: outside of all trials", f"{wall - within:.1f} of {wall:.0f} s", "15 s"))
        for command, aim in COMMANDS.items():
            words = command.replace("quickstart", str(Path(out, "quickstart"))).split()
            run(*words)
            low, middle, high = statistics.quantiles((run(*words) for _ in range(RUNS)), n=4, method="inclusive")
            lines.append((f"`{command}`", f"{middle:.2f} s ({low:.2f} to {high:.2f})", f"{aim:g} s"))
    return tabulate(
        lines, ("process", "wall time (quartiles)", "aim, at most"), tablefmt="github", disable_numparse=True
    )
