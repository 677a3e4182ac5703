"""`run SUITE`: run all trials without an outcome, then write and print the report."""

from __future__ import annotations

import argparse
import gc

from harness.cli.shared.options import add_plan_options, add_suite, keywords, quantity
from harness.cli.shared.runs import print_report
from harness.core.archive import StoredRecords
from harness.core.run_options import CHECKPOINT_SECONDS, parse_bytes, parse_seconds, parse_timeout
from harness.execution.agenda import agenda, counted

HELP = "run the remaining trials of a suite, then write its report"
EXAMPLES = (
    "run quickstart",
    "run quickstart --profile smoke --only layer=butterfly --set training.steps=20 --out /tmp/smoke",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_run_options(parser)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that runs trials."""
    add_plan_options(parser)
    parser.add_argument("--offline", action="store_true", help="download nothing; use the data that are present")
    parser.add_argument(
        "--timeout",
        type=quantity(parse_timeout),
        metavar="TIME",
        help="end a trial after this time, such as 90 (seconds) or 2h",
    )
    parser.add_argument(
        "--memory", type=quantity(parse_bytes), metavar="SIZE", help="end a trial that uses more memory, such as 4GiB"
    )
    parser.add_argument(
        "--checkpoint",
        type=quantity(parse_seconds),
        default=CHECKPOINT_SECONDS,
        metavar="TIME",
        help="interval between checkpoints of training (default: 60 s)",
    )
    parser.add_argument("--fail-fast", action="store_true", help="stop the run at the first trial that fails")
    parser.add_argument("--unchecked", action="store_true", help="run third-party layers without check-layer")
    parser.add_argument("--host", action="store_true", help="name this machine in records")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("-q", "--quiet", action="store_true", help="print only failures and a last line")
    amount.add_argument("-v", "--verbose", action="store_true", help="print the progress and the log of each trial")


def execute(args: argparse.Namespace) -> int:
    """Return 0 if every selected trial is ok, or unsupported where the suite declares it; else 1."""
    from harness.interface.run import run

    gc.enable()  # a run may take days
    results = run(**keywords(args))
    if args.quiet:
        stored = StoredRecords(results.records, results.damaged)
        entries = agenda(results.plan, results.folder, stored=stored)
        print(f"{results.plan.heading}: {counted(entries)}; the report is in {results.folder}")
    else:
        print_report(results)
    return 0 if results.ok else 1
