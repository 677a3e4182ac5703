"""`cancel DIR`: cancel the submitted trials of a run."""

from __future__ import annotations

from argparse import Namespace

from harness.cli.shared.runs import add_folder, run_folders
from harness.execution.executor import every_executor

HELP = "cancel the remaining cluster jobs of a run"
EXAMPLES = ("cancel reports/quickstart",)

add_options = add_folder


def execute(args: Namespace) -> int:
    """Return 0, also if no job is left; a failure of scancel is a UserError."""
    for folder in run_folders(args.folder):
        lines = [line for executor in every_executor() for line in executor.cancel(folder)]
        print("\n".join(lines) or f"{folder}: no cluster job uses it")
    return 0
