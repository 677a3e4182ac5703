"""`harness.plan`: the trials of a suite, the state of each, and what a run would do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.arguments import check, taking
from harness.core.errors import DataError, DataMissing, UserError
from harness.core.run_options import shown_bytes, shown_seconds
from harness.core.settings import DataRef
from harness.execution.agenda import Choice, Entry, counted, forget_settled, outlook, total_seconds, trials_text
from harness.execution.data import check_data
from harness.interface.options import Arguments, PlanArguments
from harness.interface.request import Request, data_root, make_executor, make_request
from harness.planning.plan import Plan
from harness.planning.settle import Checksums
from harness.planning.suite import Source, read_suite

if TYPE_CHECKING:
    import pandas as pd

HEADERS = ("id", "kind", "place", "layer", "repetition", "state", "time", "memory")


@dataclass(frozen=True)
class Outlook:
    """The trials that a run would have; printed, they are a table with the counts and the time that is left.

    Attributes:
        plan: the trials and what a report of them needs.
        folder: of the run, `out/<suite>`.
        entries: every trial that is due with its state in the folder.
        choice: of the trials with a record that a run executes again.
        at_once: the number of trials that run side by side.
        probed: whether trials without an estimate were probed.
        remarks: on the data, and why a run would stop because of them.
    """

    plan: Plan
    folder: Path
    entries: tuple[Entry, ...]
    choice: Choice
    at_once: int
    probed: bool
    remarks: tuple[str, ...]

    @property
    def remaining(self) -> tuple[Entry, ...]:
        """The trials that a run executes."""
        return tuple(entry for entry in self.entries if entry.runs(self.choice))

    @property
    def seconds(self) -> float | None:
        """The estimated duration of a run, of the trials that have an estimate; None if none has."""
        return total_seconds(self.remaining, self.at_once)

    @property
    def frame(self) -> pd.DataFrame:
        """The trials as a pandas frame: identity, state, and estimated seconds and bytes of those that a run does."""
        import pandas as pd

        lines = []
        for entry in self.entries:
            memory = None if entry.probe is None else entry.probe.memory
            lines.append((*_identity(entry), *((entry.seconds, memory) if entry.runs(self.choice) else (None, None))))
        types = dict.fromkeys(HEADERS, "string") | {"time": "Float64", "memory": "Int64"}
        return pd.DataFrame(lines, columns=list(HEADERS), dtype=object).astype(types)

    def __repr__(self) -> str:
        return f"<{self.plan.heading}: {counted(self.entries)}>"

    def __str__(self) -> str:
        from tabulate import tabulate

        lines = [
            (*_identity(entry), *(_costs(entry) if entry.runs(self.choice) else ("", ""))) for entry in self.entries
        ]
        shown = len(HEADERS) if self.probed else len(HEADERS) - 1
        table = tabulate(
            [line[:shown] for line in lines], headers=HEADERS[:shown], tablefmt="simple", disable_numparse=True
        )
        about = [f"{self.plan.heading}: {counted(self.entries)}"]
        about += outlook(self.entries, self.choice, self.at_once)
        about += _probe_lines(self.remaining, self.at_once) if self.probed else []
        return "\n".join([table, "", *about, *self.remarks])


@taking(PlanArguments)
def plan(suite: Source, **arguments: Any) -> Outlook:
    """Return the trials that `harness.run` would have with these arguments, and the state of each; nothing is trained.

    Args:
        suite: as of `harness.run`.
        **arguments: see below.

    Raises:
        UserError: an argument or the suite (SuiteError) is wrong. Missing data are remarks.
    """
    from harness.core.provenance.sources import Sources

    options = check(PlanArguments, arguments)
    missing, remarks = list[str](), list[str]()

    def check_now(data: Sequence[DataRef], optional: Collection[DataRef], checksums: object) -> Checksums:
        try:
            return check_data(data, data_root(options.data), offline=True, tell=remarks.append, optional=optional)
        except (DataMissing, DataError) as error:
            missing.append(f"\na run would stop, because of its data:\n{error}")
            return {}

    read = read_suite(suite)
    request = make_request(suite, read, options, make_executor(read, options), check_now)
    choice = Choice(options.retry_failed, options.stale)
    entries = request.entries(Sources().of)
    if options.probe:
        entries = _probed(request, entries, choice, options)
    forget_settled(entries, request.folder)
    at_once = request.executor.at_once([entry.trial for entry in entries if entry.runs(choice)])
    return Outlook(request.plan, request.folder, tuple(entries), choice, at_once, options.probe, (*remarks, *missing))


def _probed(request: Request, entries: Sequence[Entry], choice: Choice, options: Arguments) -> list[Entry]:
    """Return the entries, those that a run does and that have no estimate with one of a probe."""
    from harness.execution.local.slots import make_slots
    from harness.execution.probes import probe

    if not request.executor.here:
        raise UserError(f"--probe: probes run on this machine; leave out --executor {options.executor}")
    unknown = [entry for entry in entries if entry.runs(choice) and entry.seconds is None]
    slots = make_slots([entry.trial for entry in unknown], options.jobs)
    probed = probe(unknown, data_root(options.data), request.plan.memory, slots)
    estimates = {entry.trial.id: entry for entry in probed}
    return [estimates.get(entry.trial.id, entry) for entry in entries]


def _identity(entry: Entry) -> tuple[str, ...]:
    """Return the columns of a trial before its costs."""
    trial = entry.trial
    return trial.id, trial.kind, trial.place, ", ".join(trial.rows), trial.repeat, entry.text()


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
