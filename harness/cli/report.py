"""`report DIR...`: write the report again; for several folders, one for each suite and one across data sets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Annotated, get_args

from harness.cli.shared.runs import print_report, run_folders
from harness.core.archive import archive_of
from harness.core.arguments import Option, Place, Whole, add_arguments
from harness.core.errors import UserError
from harness.core.settings import Flag, Settings
from harness.interface.plan import MERGED, Terms

HELP = "write the report of a run again, or one report of several runs"
EXAMPLES = (
    "report reports/quickstart --at parameters",
    "report reports/quickstart other/quickstart --out reports/both",
    "report handed-in/records.zip --verify 5",
)


class ReportArguments(Settings):
    """The options of the command.

    Attributes:
        out: write to DIR/<suite>, of several suites also to DIR/across (default: beside the records or reports/merged).
        archive: also write records.zip, with the plan and the records in one file.
        at: add a table of the likelihoods at equal values of this measure.
        verify: instead, run N random trials of a run again, into --out, and compare; exit code 0 if all are the same.
        data: with --verify, the folder of the data sets; without it, $INVERTBENCH_DATA.
    """

    out: Annotated[Place | None, Option("DIR")] = None
    archive: Flag = False
    at: Annotated[tuple[Terms, ...], Option(choices=get_args(Terms))] = ()
    verify: Whole = None
    data: Annotated[Place | None, Option("ROOT")] = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    text = (
        "OUT/<suite>, a folder of such folders, or an archive; several runs of one suite are merged, and several "
        "suites of one kind compared across data sets"
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help=text)
    add_arguments(parser, ReportArguments)


def execute(args: argparse.Namespace) -> int:
    """Return 0 if every trial counts as ok and merged runs do not contradict each other, else 1."""
    from harness.interface.runs import merge, report

    if args.verify is not None or args.data is not None:
        return _verify(args)
    folders = [folder for named in args.folders for folder in run_folders(named)]
    merging = len(args.folders) > 1 or args.out is not None or any(map(archive_of, folders))
    if merging:
        runs = merge(folders, args.out or MERGED, at=args.at, archive=args.archive)
    else:
        runs = tuple(report(folder, at=args.at, archive=args.archive) for folder in folders)
    for results in runs:
        print_report(results, args.at)
    return 1 if any(not results.ok or (merging and results.conflicts) for results in runs) else 0


def _verify(args: argparse.Namespace) -> int:
    from harness.interface.runs import VERIFIED, verify
    from harness.reporting.compare.comparison import comparison_table
    from harness.reporting.tables.rendering import plain

    folders = [folder for named in args.folders for folder in run_folders(named)]
    if args.verify is None or len(folders) != 1 or args.archive or args.at:
        raise UserError("--verify N takes one run or archive, --out and --data, and no other option")
    verified = verify(folders[0], number=args.verify, out=args.out or VERIFIED, data=args.data)
    print(f"\n{plain(comparison_table(verified))}\n")
    print("verified" if verified.same else "not verified: not every trial is the same")
    return 0 if verified.same else 1
