"""`plan SUITE`: print the trials of a profile, the state of each, what a run would do, and the power of one."""

from __future__ import annotations

import argparse
import contextlib

from harness.cli.shared.runs import add_suite, keywords
from harness.core.arguments import add_arguments
from harness.core.errors import UserError
from harness.interface.plan import RunArguments, plan
from harness.planning.plan import FILE

HELP = "print the trials of a suite and their states"
EXAMPLES = ("plan quickstart", "plan density --profile paper --data data")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_arguments(parser, RunArguments)


def execute(args: argparse.Namespace) -> int:
    """Return 0: a plan can be printed in any state of its trials."""
    planned = plan(**keywords(args))
    print(planned)
    if (planned.folder / FILE).is_file():
        from harness.reporting.report import ReportedResults

        with contextlib.suppress(UserError):  # damaged records, which a run names
            answer = ReportedResults.read(planned.folder).report.answer
            for text in dict(answer.remarks if answer else ()).get("Power", ()):
                print(text)
    return 0
