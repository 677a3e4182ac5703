"""`status DIR`: count the trials by state; print a line for each that is not ok."""

from __future__ import annotations

from argparse import Namespace

from harness.cli.shared.options import add_folder
from harness.cli.shared.runs import exit_code, print_strays, run_folders
from harness.core.archive import read_records
from harness.execution.agenda import MISSING, agenda, counted, counted_by_stage
from harness.execution.executor import every_executor
from harness.planning.plan import Plan

HELP = "count the trials of a run by state"
EXAMPLES = ("status reports/quickstart", "status reports")


add_options = add_folder


def execute(args: Namespace) -> int:
    """Return 0 if every trial of every folder counts as ok, else 1."""
    code = 0
    for folder in run_folders(args.folder):
        plan = Plan.load(folder)
        stored = read_records(folder, plan.trials, others=True)
        entries = agenda(plan, folder, stored=stored)
        print(f"{folder}: {plan.suite}, profile {plan.profile}, on {plan.device}: {counted(entries)}")
        for line in counted_by_stage(entries):
            print(f"  {line}")
        for entry in entries:
            if entry.state != MISSING and not entry.trial.accepts(entry.state, unsupported=False):
                print(f"  {entry.trial.id}  {entry.state}: {entry.reason}")
        print_strays(plan, folder, stored)
        for line in (line for executor in every_executor() for line in executor.status(folder)):
            print(line)
        code = max(code, exit_code(plan, entries))
    return code
