"""`status DIR`: count the trials by state; print a line for each that is not ok, and for each that runs now."""

from __future__ import annotations

import argparse

from harness.cli.shared.runs import add_folder, run_folders
from harness.core.archive import read_records
from harness.execution.agenda import MISSING, agenda, counted
from harness.execution.executor import every_executor
from harness.planning.plan import Plan, stray_records

HELP = "count the trials of a run by state, and show those that run now"
EXAMPLES = ("status reports/quickstart",)

add_options = add_folder


def execute(args: argparse.Namespace) -> int:
    """Return 0 if every trial of every folder counts as ok, else 1."""
    code = 0
    for run in run_folders(args.folder):
        plan = Plan.load(run)
        stored = read_records(run, plan.trials, others=True)
        entries = agenda(plan, run, stored=stored)
        print(f"{run}: {plan.suite}, profile {plan.profile}, on {plan.device}: {counted(entries)}")
        for entry in entries:
            if entry.state != MISSING and not entry.trial.accepts(entry.state, unsupported=False):
                print(f"  {entry.trial.id}  {entry.state}: {entry.reason}")
        executors = (line for executor in every_executor() for line in executor.status(run))
        for line in (*stray_records(plan, run, stored), *executors):
            print(line)
        accepted = all(entry.trial.accepts(entry.state, plan.unsupported) for entry in entries)
        code = code if accepted else 1
    return code
