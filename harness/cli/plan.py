"""`plan SUITE`: print the trials of a profile, the state of each, and what a run would do."""

from __future__ import annotations

import argparse

from harness.cli.shared.runs import add_suite, keywords
from harness.core.arguments import add_arguments
from harness.interface.plan import RunArguments, plan

HELP = "print the trials of a suite and their states"
EXAMPLES = ("plan quickstart", "plan density --profile paper --data data")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_arguments(parser, RunArguments)


def execute(args: argparse.Namespace) -> int:
    """Return 0: a plan can be printed in any state of its trials."""
    print(plan(**keywords(args)))
    return 0
