"""`replicate SUITE`: run a suite under several draws of all that it draws, and count the verdicts that stay."""

from __future__ import annotations

import argparse
import gc

from harness.cli.shared.runs import keywords
from harness.core.arguments import add_arguments
from harness.interface.plan import ReplicateArguments

HELP = "run a suite several times with new random draws, and count the verdicts that stay"
EXAMPLES = (
    "replicate which_layer --draws 5",
    "replicate first/which_layer second/which_layer third/which_layer --out /tmp/compared",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command: those of `run`, but for its argument."""
    parser.add_argument(
        "suite",
        nargs="+",
        metavar="SUITE|DIR",
        help="a suite to run, each draw in OUT/<suite>-draws; or folders or archives of two or more runs of a suite",
    )
    add_arguments(parser, ReplicateArguments)


def execute(args: argparse.Namespace) -> int:
    """Return 0 if every trial of the draws counts as ok, else 1."""
    from harness.interface.runs import replicate
    from harness.reporting.compare.replication import STEM, replication_tables
    from harness.reporting.tables.rendering import plain

    gc.enable()  # a run may take days
    suite, *others = args.suite
    result = replicate(**keywords(args) | {"suite": args.suite if others else suite})
    print("\n\n".join(map(plain, replication_tables(result))))
    print(f"\nin {result.folder}: {', '.join(f'{STEM}.{ending}' for ending in ('md', 'tex', 'csv'))}")
    return 0 if all(run.ok for run in result.runs.values()) else 1
