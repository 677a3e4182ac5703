"""`plan SUITE`: print the trials of a profile, the state of each, and what a run would do."""

from __future__ import annotations

import argparse

from harness.cli.shared.options import add_plan_options, add_suite
from harness.cli.shared.request import data_root, known_checksums, make_request
from harness.core.errors import DataError, DataMissing
from harness.core.run_options import shown_seconds
from harness.execution.agenda import Choice, counted, forget_settled, outlook
from harness.execution.data import check_data
from harness.planning.suite import read_suite

HELP = "print the trials of a suite and their states"
EXAMPLES = ("plan quickstart", "plan density --profile paper --data data")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_plan_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Return 0: a plan can be printed in any state of its trials."""
    from tabulate import tabulate

    from harness.core.provenance.sources import Sources

    request = make_request(read_suite(args.suite), args)
    missing = ""
    checksums = known_checksums(request.folder)
    try:
        checksums |= check_data(request.trials, data_root(args.data), offline=True)
    except (DataMissing, DataError) as error:
        missing = f"\na run would stop, because data are missing:\n{error}"
    request = request.with_checksums(checksums)
    plan, choice = request.plan, Choice(args.retry_failed, args.stale)
    entries = request.entries(Sources().of)
    lines = []
    for entry in entries:
        runs = entry.runs(choice)
        time = shown_seconds(entry.seconds) if runs and entry.seconds is not None else "?" if runs else ""
        trial = entry.trial
        lines.append((trial.id, trial.kind, trial.place, ", ".join(trial.rows), trial.repeat, entry.text(), time))
    headers = ("id", "kind", "place", "layer", "repetition", "state", "time")
    print(tabulate(lines, headers=headers, tablefmt="simple", disable_numparse=True))
    print(f"\n{plan.suite}, profile {plan.profile}, on {plan.device}: {counted(entries)}")
    forget_settled(entries, request.folder)
    trials = [entry.trial for entry in entries if entry.runs(choice)]
    for line in outlook(entries, choice, request.at_once(trials, args.jobs)):
        print(line)
    if missing:
        print(missing)
    return 0
