"""`export DIR --to FORMAT`: write the results of a run for another tool."""

from __future__ import annotations

import argparse

from harness.cli.shared.options import add_folder
from harness.cli.shared.runs import run_folders
from harness.execution.folder import writing
from harness.reporting.exports import FORMATS, export

HELP = "write the curves and measures of a run for another tool"
EXAMPLES = ("export reports/quickstart --to tensorboard", "export reports --to csv")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_folder(parser)
    text = "csv: the training curves, as curves.csv; tensorboard: curves, measures and settings, for its logdir"
    parser.add_argument("--to", choices=FORMATS, required=True, help=text)


def execute(args: argparse.Namespace) -> int:
    """Return 0."""
    from harness.reporting.frame import Results

    for folder in run_folders(args.folder):
        results = Results.read(folder)
        with writing(folder):
            print(export(results, folder, args.to))
    return 0
