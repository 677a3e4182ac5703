"""`report DIR...`: write the report again; for several folders, one for each suite and one across data sets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from harness.cli.shared.runs import print_report, run_folders
from harness.core.archive import FILE, archive_of
from harness.interface.options import MERGED, Terms

HELP = "write the report of a run again, or one report of several runs"
EXAMPLES = (
    "report reports/quickstart --at parameters",
    "report reports/quickstart other/quickstart --out reports/both",
    "report reports/which_layer reports/permuted --out reports/both",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "folders",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="OUT/<suite>, a folder of such folders, or an archive; several runs of one suite are merged, and several "
        "suites of one kind compared across data sets",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write to DIR/<suite>, and for several suites also to DIR/across (default: beside the records; for a "
        f"merge, {MERGED})",
    )
    parser.add_argument(
        "--archive", action="store_true", help=f"also write {FILE}, with the plan and the records in one file"
    )
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        choices=get_args(Terms),
        help="add a table of the likelihoods at equal values of this measure; repeatable",
    )


def execute(args: argparse.Namespace) -> int:
    """Return 0 if every trial counts as ok and merged runs do not contradict each other, else 1."""
    from harness.interface.report import merge, report

    folders = [folder for named in args.folders for folder in run_folders(named)]
    merging = len(args.folders) > 1 or args.out is not None or any(map(archive_of, folders))
    if merging:
        runs = merge(folders, args.out or MERGED, at=args.at, archive=args.archive)
    else:
        runs = tuple(report(folder, at=args.at, archive=args.archive) for folder in folders)
    for results in runs:
        print_report(results, args.at)
    return 1 if any(not results.ok or (merging and results.conflicts) for results in runs) else 0
