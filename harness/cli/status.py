"""`status DIR`: count the trials by state; print a line for each that is not ok, and for each that runs now."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from datetime import datetime
from pathlib import Path

from harness.cli.shared.runs import add_folder, run_folders
from harness.core.archive import read_records
from harness.core.texts import visible
from harness.execution.agenda import MISSING, agenda, all_accepted, counted
from harness.execution.executor import every_executor
from harness.planning.plan import Plan, stray_records

HELP = "count the trials of a run by state, and show those that run now"
EXAMPLES = ("status reports/quickstart", "status --watch reports")

WATCH = 2.0  # seconds


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_folder(parser)
    parser.add_argument("--watch", action="store_true", help=f"print it again every {WATCH:g} seconds, until Ctrl-C")


def execute(args: argparse.Namespace) -> int:
    """Return 0 if every trial of every folder counts as ok, else 1; of a watch, as it was when Ctrl-C ended it."""
    return _watch(args.folder) if args.watch else _print_status(args.folder)


def _print_status(folder: Path) -> int:
    code = 0
    for run in run_folders(folder):
        plan = Plan.load(run)
        stored = read_records(run, plan.trials, others=True)
        entries = agenda(plan, run, stored=stored)
        print(f"{run}: {plan.suite}, profile {plan.profile}, on {plan.device}: {counted(entries)}")
        for entry in entries:
            if entry.state != MISSING and not entry.trial.accepts(entry.state, unsupported=False):
                print(f"  {entry.trial.id}  {entry.state}: {entry.reason}")
        executors = (line for executor in every_executor() for line in executor.status(run))
        for line in (*stray_records(plan, run, stored), *executors):
            print(line)
        code = code if all_accepted(entries, plan.unsupported) else 1
    return code


def _watch(folder: Path) -> int:
    """Print the status again and again, on a terminal in place of the last, until Ctrl-C; return the last code."""
    from rich.console import Console
    from rich.text import Text

    # On standard error of a terminal, as the progress of a run: standard output shows a terminal's commands as escapes.
    console = Console(stderr=sys.stdout.isatty() and sys.stderr.isatty())
    code, text = _look(folder)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            console.clear()
            console.print(Text(visible(text)), soft_wrap=True)
            time.sleep(WATCH)
            code, text = _look(folder)
    return code


def _look(folder: Path) -> tuple[int, str]:
    """Return the exit code of the status, and its text below the time."""
    text = io.StringIO()
    print(f"{datetime.now():%H:%M:%S}, Ctrl-C ends the watch", file=text)
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = _print_status(folder)
    return code, text.getvalue()
