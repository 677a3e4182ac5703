"""`cancel DIR`: cancel the remaining cluster jobs of a run."""

from __future__ import annotations

from argparse import Namespace

from harness.cli.shared.options import add_folder
from harness.cli.shared.runs import run_folders

HELP = "cancel the remaining cluster jobs of a run"
EXAMPLES = ("cancel reports/quickstart",)


add_options = add_folder


def execute(args: Namespace) -> int:
    """Return 0, also if no job is left; a failure of scancel is a UserError."""
    from harness.execution.slurm.slurm import cancel_all

    for folder in run_folders(args.folder):
        print("\n".join(cancel_all(folder)) or f"{folder}: no cluster job uses it")
    return 0
