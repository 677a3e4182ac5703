"""Seconds from the start of the command to the end of the first training step, on a warm cache.

    python tests/benchmarks/first_step.py [--suite FILE] [--profile local] [--dataset mnist] [--data ROOT]

Runs the command as a user would, once to fill the cache and then five times, each into a new folder, and prints
each time and the median. The layer under test is the 1x1 convolution of this file, which says when it is asked for
the gradients of a second batch: by then the first step has ended.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from layers import LAYERS

MARK = "the first step had ended by"
TIMEOUT = 120  # seconds


class Conv1x1Clock(LAYERS["conv1x1"]):
    """A 1x1 convolution that prints the time when its second pass with gradients begins."""

    passes = 0

    def forward(self, x):
        if torch.is_grad_enabled():
            self.passes += 1
            if self.passes == 2:
                print(f"{MARK} {time.time()!r}", flush=True)
        return super().forward(x)


def seconds_to_first_step(command: list[str], out: Path) -> float:
    """Run the command until a trial's log has the mark, and end it as Ctrl-C would."""
    start = time.time()
    process = subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while time.time() - start < TIMEOUT:
            for log in out.glob("*/logs/*.log"):
                for line in log.read_text().splitlines():
                    if line.startswith(MARK):
                        return float(line.removeprefix(MARK)) - start
            if process.poll() is not None:
                raise SystemExit(f"the command ended before the first step: {process.stderr.read().decode()}")
            time.sleep(0.05)
        raise SystemExit(f"no first step within {TIMEOUT} s")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="suites/density.yaml")
    parser.add_argument("--profile", default="local")
    parser.add_argument("--dataset", default="mnist", help="a column of the profile")
    parser.add_argument("--data", help="the data root")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    layer = f"{Path(__file__).resolve()}:{Conv1x1Clock.__name__}"
    command = [sys.executable, "-m", "harness", "run", args.suite, "--profile", args.profile, "--seeds", "1"]
    command += ["--only", f"dataset={args.dataset}", "--only", f"layer={Conv1x1Clock.__name__}", "--layer", layer]
    command += ["--data", args.data] if args.data else []
    with tempfile.TemporaryDirectory() as folder:
        times = [seconds_to_first_step(command, Path(folder, str(number))) for number in range(args.runs + 1)][1:]
    print(f"seconds to the first step: {', '.join(f'{value:.2f}' for value in times)}; median", end=" ")
    print(f"{statistics.median(times):.2f}")


if __name__ == "__main__":
    main()
