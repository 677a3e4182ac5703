"""`report DIR...`: write the report again; for several folders, one for each suite and one across data sets."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.shared.runs import MERGED, exit_code, print_strays, report_folder, run_folders
from harness.core.archive import FILE, archive_of, read_records
from harness.execution.agenda import agenda
from harness.execution.folder import writing
from harness.planning.plan import Plan

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
        help="OUT/<suite>, a folder of such, or an archive of records; several runs are merged by suite, and suites "
        "of one kind compared across data sets",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"write to DIR/<suite>, and DIR/across for several (default: beside the records; of a merge, {MERGED})",
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
    runs = []
    for folder in folders:
        plan = Plan.load(folder)
        stored = read_records(folder, plan.trials, others=True)
        if not merging:
            print_strays(plan, folder, stored)
        runs.append(report_folder(plan, folder, stored, args.at, args.archive))
        code = max(code, exit_code(plan, agenda(plan, folder, stored=stored)))
    if len(runs) > 1 and merging:
        from harness.reporting.overview import FOLDER, write_overview

        target = (args.out or MERGED) / FOLDER
        with writing(target):
            text = write_overview(target, runs)
        print("" if text is None else f"\n{text}\n\nin {target}")
    return code
