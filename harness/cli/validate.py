"""`validate SUITE`: check a suite file in one or all of its profiles."""

from __future__ import annotations

import argparse

from harness.cli.shared.options import add_profile, add_suite
from harness.execution.agenda import trials_text
from harness.planning.plan import Plan
from harness.planning.suite import read_suite

HELP = "check a suite in all its profiles; nothing runs"
EXAMPLES = ("validate quickstart", "validate mine.yaml --profile smoke")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_profile(parser, default=None, text="only this profile (default: all)")


def execute(args: argparse.Namespace) -> int:
    """Return 0; a fault of the suite is a UserError."""
    from harness.checking.imports import try_imports

    suite = read_suite(args.suite)
    try_imports(suite.third_party)
    suite.check(shapes=args.profile is None)
    names = suite.profile_names if args.profile is None else [args.profile]
    counts = [f"{name} {_count(suite.plan(name, 'cpu')[0])}" for name in names]
    print(f"ok: {args.suite} ({', '.join(counts)})")
    return 0


def _count(plan: Plan) -> str:
    """Return the number of trials; under a budget of time it is known only after the run."""
    due = len(plan.due({}))
    return trials_text(due) + (" or more" if due < len(plan.trials) else "")
