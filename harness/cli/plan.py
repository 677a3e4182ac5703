"""`plan SUITE`: print the trials of a profile, the state of each, and what a run would do."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

from harness.cli.shared.options import add_plan_options, add_suite
from harness.cli.shared.request import Request, data_root, make_executor, make_request
from harness.core.errors import DataError, DataMissing, UserError
from harness.core.run_options import shown_bytes, shown_seconds
from harness.core.settings import DataRef
from harness.execution.agenda import Choice, Entry, counted, forget_settled, outlook, total_seconds, trials_text
from harness.execution.data import check_data
from harness.planning.settle import Checksums
from harness.planning.suite import read_suite

HELP = "print the trials of a suite and their states"
EXAMPLES = ("plan quickstart", "plan density --profile paper --data data --probe")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_plan_options(parser)
    text = "estimate time and memory of the trials: run a few steps of each layer and data set without an estimate"
    parser.add_argument("--probe", action="store_true", help=text)


def execute(args: argparse.Namespace) -> int:
    """Return 0: a plan can be printed in any state of its trials."""
    from tabulate import tabulate

    from harness.core.provenance.sources import Sources

    missing, remarks = list[str](), list[str]()

    def check(data: Sequence[DataRef], optional: Collection[DataRef], checksums: object) -> Checksums:
        try:
            return check_data(data, data_root(args.data), offline=True, tell=remarks.append, optional=optional)
        except (DataMissing, DataError) as error:
            missing.append(f"\na run would stop, because of its data:\n{error}")
            return {}

    suite = read_suite(args.suite)
    request = make_request(suite, args, make_executor(suite, args), check)
    plan, choice = request.plan, Choice(args.retry_failed, args.stale)
    entries = request.entries(Sources().of)
    if args.probe:
        entries = _probed(request, entries, choice, args)
    lines = []
    for entry in entries:
        runs, trial = entry.runs(choice), entry.trial
        about = (trial.id, trial.kind, trial.place, ", ".join(trial.rows), trial.repeat, entry.text())
        lines.append([*about, *(_costs(entry) if runs else ("", ""))])
    headers = ["id", "kind", "place", "layer", "repetition", "state", "time", "memory"]
    if not args.probe:
        headers, lines = headers[:-1], [line[:-1] for line in lines]
    print(tabulate(lines, headers=headers, tablefmt="simple", disable_numparse=True))
    print(f"\n{plan.suite}, profile {plan.profile}, on {plan.device}: {counted(entries)}")
    forget_settled(entries, request.folder)
    trials = [entry.trial for entry in entries if entry.runs(choice)]
    at_once = request.executor.at_once(trials)
    for line in outlook(entries, choice, at_once):
        print(line)
    if args.probe:
        for line in _probe_lines([entry for entry in entries if entry.runs(choice)], at_once):
            print(line)
    for line in (*remarks, *missing):
        print(line)
    return 0


def _probed(request: Request, entries: Sequence[Entry], choice: Choice, args: argparse.Namespace) -> list[Entry]:
    """Return the entries, those that a run does and that have no estimate with one of a probe."""
    from harness.execution.local.slots import make_slots
    from harness.execution.probes import probe

    if request.executor.elsewhere is not None:
        raise UserError(f"--probe: probes run on this machine; leave out --executor {args.executor}")
    unknown = [entry for entry in entries if entry.runs(choice) and entry.seconds is None]
    slots = make_slots([entry.trial for entry in unknown], args.jobs)
    probed = probe(unknown, data_root(args.data), request.plan.memory, slots)
    estimates = {entry.trial.id: entry for entry in probed}
    return [estimates.get(entry.trial.id, entry) for entry in entries]


def _costs(entry: Entry) -> tuple[str, str]:
    """Return time and memory of a trial as texts."""
    fault = None if entry.probe is None else entry.probe.fault
    time = "?" if entry.seconds is None else shown_seconds(entry.seconds)
    memory = None if entry.probe is None else entry.probe.memory
    return time if fault is None else fault.partition(":")[0], "" if memory is None else shown_bytes(memory)


def _probe_lines(entries: Sequence[Entry], at_once: int) -> list[str]:
    """Return the total, and why probes have no estimate."""
    from harness.execution.probes import NO_DATA

    probes = [entry.probe for entry in entries if entry.probe is not None]
    lines = []
    if total_seconds(entries, 1) is not None:
        jobs = {number: shown_seconds(total_seconds(entries, number) or 0.0) for number in (1, at_once)}
        times = ", ".join(f"{time} on {number} job{'s' * (number > 1)}" for number, time in jobs.items())
        unknown = sum(entry.seconds is None for entry in entries)
        rest = f", without {trials_text(unknown)} of unknown duration" if unknown else ""
        most = max((probe.memory for probe in probes if probe.memory is not None), default=None)
        memory = "" if most is None else f"; a trial holds up to {shown_bytes(most)}"
        lines.append(f"in all about {times}{rest}{memory}")
    faults = {(entry.trial.place, entry.trial.rows): entry.probe.fault for entry in entries if entry.probe is not None}
    ended = {cell: fault for cell, fault in faults.items() if fault not in (None, NO_DATA)}
    return lines + [
        f"the probe of {place}, {', '.join(rows)} ended with {fault}" for (place, rows), fault in ended.items()
    ]
