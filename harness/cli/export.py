"""`export DIR --to FORMAT`: write the results of a run for another tool."""

from __future__ import annotations

import argparse
from importlib import import_module

from harness.cli.shared.runs import add_folder, run_folders
from harness.core.discovery import names_in
from harness.core.errors import UserError
from harness.execution.folder import writing
from harness.interface.plan import MERGED
from harness.reporting import exports

HELP = "write the curves, tables and figures of a run for another tool"
EXAMPLES = (
    "export reports/quickstart --to tensorboard",
    "export reports/quickstart --to latex --columns digits --rows conv1x1 --rows butterfly",
    "export records.zip --to csv",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_folder(parser)
    text = (
        "csv: the curves, and the cells of every table; latex: a file for each table; pdf: the figures; tensorboard: "
        "curves, measures and settings, for its logdir; written to the folder of the run, or for an archive to "
        f"{MERGED}/<suite>"
    )
    parser.add_argument("--to", choices=names_in(exports), required=True, help=text)
    for axis, what in (("rows", "of tables"), ("columns", "of tables, by heading")):
        about = f"{what}; repeatable (default: all)"
        parser.add_argument(f"--{axis}", action="append", default=[], metavar="NAME", help=about)


def execute(args: argparse.Namespace) -> int:
    """Return 0."""
    from harness.reporting.report import ReportedResults
    from harness.reporting.tables.selection import Selection

    write = import_module(f"{exports.__name__}.{args.to}").write
    runs = [(folder, ReportedResults.read(folder)) for folder in run_folders(args.folder)]
    if not any(results.records for _, results in runs):
        raise UserError(f"{args.folder}: has no records; give the folder in which a suite was run, or its archive")
    for folder, results in runs:
        target = MERGED / results.plan.suite if folder.is_file() else folder
        with writing(target):
            target.mkdir(parents=True, exist_ok=True)
            print("\n".join(map(str, write(results, target, Selection(args.rows, args.columns)))))
    return 0
