"""`validate SUITE`: check a suite file in one or all of its profiles, and the data that are there."""

from __future__ import annotations

import argparse
from typing import get_args

from harness.cli.shared.runs import add_suite, keywords
from harness.core.arguments import add_arguments
from harness.execution.agenda import trials_text
from harness.interface.plan import RunArguments, validate
from harness.planning.suite_model import ProfileName

HELP = "check a suite in all its profiles, and the data that are present; run nothing"
EXAMPLES = ("validate quickstart", "validate mine.yaml --profile smoke")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_arguments(parser, RunArguments, "data")
    text = "only this profile (default: all)"
    parser.add_argument("--profile", choices=get_args(ProfileName), help=text)


def execute(args: argparse.Namespace) -> int:
    """Return 0; raise the fault of the suite, or those of its data."""
    counts = []
    for name, plan in validate(**keywords(args)).items():
        due = len(plan.due({}))  # under halving the least
        counts.append(f"{name} {trials_text(due)}{' or more' * (due < len(plan.trials))}")
    print(f"ok: {args.suite} ({', '.join(counts)})")
    return 0
