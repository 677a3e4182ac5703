"""`run SUITE`: run all trials without an outcome, then write and print the report."""

from __future__ import annotations

import argparse
import gc

from harness.cli.shared.runs import add_suite, keywords, print_report
from harness.core.arguments import add_arguments
from harness.interface.plan import RunArguments

HELP = "run the remaining trials of a suite, then write its report"
EXAMPLES = (
    "run quickstart",
    "run quickstart --profile smoke --only layer=butterfly --set training.steps=20 --out /tmp/smoke",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_arguments(parser, RunArguments)


def execute(args: argparse.Namespace) -> int:
    """Return 0 if every selected trial is ok, or unsupported where the suite declares it; else 1."""
    from harness.interface.runs import run

    gc.enable()  # a run may take days
    results = run(**keywords(args))
    if args.quiet:
        print(f"{results.plan.heading}: {results.status_line}; the report is in {results.folder}")
    else:
        print_report(results)
    return 0 if results.ok else 1
