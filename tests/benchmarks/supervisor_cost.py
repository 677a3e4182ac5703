"""Measure the cost of supervision per trial, beyond the start of its process, and while trials run.

    python tests/benchmarks/supervisor_cost.py [--trials 20] [--seconds 30]

1. Trials that do nothing, one after another, under the supervisor (start, log, provenance, record, its reading),
   against bare processes of the same fork server that do nothing either. Bound: 0.3 s per trial.
2. A trial that computes for a while and tells its progress: the processor time of the supervisor meanwhile, with
   a timeout and a memory limit to watch. Bound: 1 % of the time, which is 6 s of a suite of 10 minutes.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import tempfile
import time
from pathlib import Path

from harness.core.run_options import RunOptions
from harness.core.settings import FlowSettings, LayerRef
from harness.core.trial import Trial
from harness.execution.local.process import start_server
from harness.execution.local.slots import Slots
from harness.execution.local.supervisor import run_trials
from harness.execution.progress import Reporter
from harness.kinds.parameters.trial import ParametersTrial

MOST_PER_TRIAL = 0.3  # seconds
MOST_OF_A_SUITE = 0.01


def nothing() -> None:
    """Do nothing, in a bare process."""


def record_nothing(trial, run_options, provenance, progress) -> None:
    """Run a trial that does nothing, under full supervision."""
    from harness.core.records import blank_record
    from harness.execution.trial import execute

    execute(trial, run_options, provenance, progress, run=lambda trial, *_: blank_record(trial, "ok", None))


def compute(trial, run_options, provenance, progress) -> None:
    """Keep a core busy for `trial.shape[0]` tenths of a second, and report progress."""
    end = time.monotonic() + trial.shape[0] / 10
    while time.monotonic() < end:
        sum(range(10_000))
        progress(0.5, "busy")
    record_nothing(trial, run_options, provenance, progress)


def make_trial(number: int, tenths: int = 1) -> Trial:
    """Return a trial with this number."""
    layer = LayerRef(row="one", layer="conv1x1")
    return ParametersTrial(
        suite="cost", profile="smoke", label=f"n{number}", shape=(tenths, 4), layer=layer, flow=FlowSettings()
    )


def per_trial(count: int, out: Path) -> tuple[float, float]:
    """Return the median seconds of a bare process and the mean seconds of a supervised trial, both without work."""
    context = start_server([], [], kernels=False)
    bare = []
    for _ in range(count + 3):
        begin = time.perf_counter()
        process = context.Process(target=nothing)
        process.start()
        process.join()
        bare.append(time.perf_counter() - begin)
    reporter = Reporter(count, io.StringIO())
    trials = [make_trial(number) for number in range(count)]
    begin = time.perf_counter()
    run_trials(trials, RunOptions(out), Slots(1), reporter, work=record_nothing)
    return statistics.median(bare[3:]), (time.perf_counter() - begin) / count


def while_running(seconds: float, out: Path) -> tuple[float, float]:
    """Return the processor and wall seconds of this process while a trial of that length runs under limits."""
    run_options = RunOptions(out, timeout=10 * seconds, memory=64 << 30)
    before, begin = sum(os.times()[:2]), time.perf_counter()
    run_trials([make_trial(0, int(10 * seconds))], run_options, Slots(1), Reporter(1, io.StringIO()), work=compute)
    return sum(os.times()[:2]) - before, time.perf_counter() - begin


def main() -> int:
    """Measure and print; exit with 1 if a bound is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bare, whole = per_trial(args.trials, Path(folder) / "many")
        used, wall = while_running(args.seconds, Path(folder) / "long")
    print(f"a process of the fork server, started and ended: {1000 * bare:.0f} ms (median of {args.trials})")
    print(f"a supervised trial that does nothing:            {1000 * whole:.0f} ms (mean of {args.trials})")
    print(f"supervision per trial beyond the process:        {1000 * (whole - bare):.0f} ms (bound: 300)")
    print(f"supervisor while a trial runs: {used:.2f} s of {wall:.1f} s, {100 * used / wall:.2f} % (bound: 1)")
    return 0 if whole - bare < MOST_PER_TRIAL and used / wall < MOST_OF_A_SUITE else 1


if __name__ == "__main__":
    raise SystemExit(main())
