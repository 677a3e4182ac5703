"""`report DIR...`: write the report again; for several folders, one report of all their records."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.shared.runs import MERGED, exit_code, print_strays, report_folder, run_folders
from harness.core.archive import FILE, archive_of, read_records
from harness.execution.agenda import agenda
from harness.planning.plan import Plan

HELP = "write the report of a run again, or one report of several runs"
EXAMPLES = (
    "report reports/quickstart --at parameters",
    "report reports/quickstart other/quickstart --out reports/both",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "folders",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="OUT/<suite>, a folder of such, or an archive of records; several runs are merged",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"write the report to DIR/<suite> (default: beside its records; of a merge or an archive, {MERGED})",
    )
    parser.add_argument(
        "--archive", action="store_true", help=f"also write {FILE}, which holds the plan and the records in one file"
    )
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        choices=["steps", "seconds", "parameters", "width"],
        help="add a table of the likelihoods at equal values of this measure; repeatable",
    )


def execute(args: argparse.Namespace) -> int:
    """Return 0 if every trial counts as ok and merged runs do not contradict each other, else 1."""
    folders = [folder for named in args.folders for folder in run_folders(named)]
    merging = len(args.folders) > 1 or args.out is not None or any(map(archive_of, folders))
    code = 0
    if merging:
        from harness.reporting.compare.merge import merge

        for folder in folders:
            print_strays(Plan.load(folder), folder)
        merged = merge(folders, args.out or MERGED)
        folders = [run.folder for run in merged]
        for run in merged:
            print("\n".join(run.lines()))
            code = max(code, 1 if run.conflicts else 0)
    for folder in folders:
        plan = Plan.load(folder)
        stored = read_records(folder, plan.trials, others=True)
        if not merging:
            print_strays(plan, folder, stored)
        report_folder(plan, folder, stored, args.at, args.archive)
        code = max(code, exit_code(plan, agenda(plan, folder, stored=stored)))
    return code
