"""`validate SUITE`: check a suite file in one or all of its profiles."""

from __future__ import annotations

import argparse
from argparse import Namespace

from harness.cli.shared.options import add_profile, add_suite
from harness.execution.agenda import trials_text

HELP = "check a suite in all its profiles; nothing runs"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_profile(parser, default=None, text="only this profile (default: all)")


def execute(args: Namespace) -> int:
    """Return 0; a fault of the suite is a UserError."""
    from harness.checking.imports import try_imports
    from harness.planning.any_suite import count_any

    try_imports(args.suite)
    counts = count_any(args.suite, args.profile)
    print(f"ok: {args.suite} ({', '.join(f'{name} {trials_text(count)}' for name, count in counts.items())})")
    return 0
