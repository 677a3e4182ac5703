"""`validate SUITE`: check a suite file in one or all of its profiles, and the data that are there."""

from __future__ import annotations

import argparse

from harness.cli.shared.options import add_data, add_profile, add_suite, keywords
from harness.execution.agenda import trials_text
from harness.planning.plan import Plan

HELP = "check a suite in all its profiles, and the data that are present; run nothing"
EXAMPLES = ("validate quickstart", "validate mine.yaml --profile smoke")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_profile(parser, default=None, text="only this profile (default: all)")
    add_data(parser)


def execute(args: argparse.Namespace) -> int:
    """Return 0; raise the fault of the suite, or those of its data."""
    from harness.interface.validate import validate

    counts = [f"{name} {_count(plan)}" for name, plan in validate(**keywords(args)).items()]
    print(f"ok: {args.suite} ({', '.join(counts)})")
    return 0


def _count(plan: Plan) -> str:
    """Return the number of trials, under a budget of time the least."""
    due = len(plan.due({}))
    return trials_text(due) + (" or more" if due < len(plan.trials) else "")
