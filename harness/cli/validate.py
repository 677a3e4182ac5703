"""`validate SUITE`: check a suite file in one or all of its profiles, and the data that are there."""

from __future__ import annotations

import argparse

from harness.cli.shared.options import add_data, add_profile, add_suite
from harness.cli.shared.request import data_root
from harness.core.errors import DataMissing
from harness.execution.agenda import trials_text
from harness.execution.data import examine_data, raise_faults
from harness.planning.plan import Plan
from harness.planning.settle import check_suite, settle
from harness.planning.suite import read_suite

HELP = "check a suite in all its profiles, and the data that are there; nothing runs"
EXAMPLES = ("validate quickstart", "validate mine.yaml --profile smoke")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_profile(parser, default=None, text="only this profile (default: all)")
    add_data(parser)


def execute(args: argparse.Namespace) -> int:
    """Return 0; raise the fault of the suite, or those of its data.

    Missing data are a fault if `--data` names their folder and a run would not leave them out, else a remark: a suite
    is right on any machine.
    """
    from harness.checking.imports import try_imports

    suite = read_suite(args.suite)
    try_imports(suite.third_party)
    check_suite(suite, shapes=args.profile is None)
    names = suite.profile_names if args.profile is None else [args.profile]
    settled = {name: settle(suite, name, "cpu") for name in names}
    plans = {name: profile.plan().plan for name, profile in settled.items()}
    data = [reference for profile in settled.values() for reference in profile.data]
    _, faults = examine_data(data, data_root(args.data), offline=True, tell=print)
    optional = {reference for profile in settled.values() for reference in profile.optional}
    remarks = dict[str, None]()
    for reference, fault in list(faults.items()):
        if isinstance(fault, DataMissing) and (args.data is None or reference in optional):
            remarks[f"note: not here, so not checked: {faults.pop(reference)}"] = None
    for line in remarks:
        print(line)
    raise_faults(faults.values())
    counts = [f"{name} {_count(plan)}" for name, plan in plans.items()]
    print(f"ok: {args.suite} ({', '.join(counts)})")
    return 0


def _count(plan: Plan) -> str:
    """Return the number of trials, under a budget of time the least."""
    due = len(plan.due({}))
    return trials_text(due) + (" or more" if due < len(plan.trials) else "")
