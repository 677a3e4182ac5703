"""`harness.plan`: the trials of a suite, the state of each, and what a run would do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.arguments import check, taking
from harness.core.errors import DataError, DataMissing
from harness.core.run_options import shown_seconds
from harness.core.settings import DataRef
from harness.execution.agenda import AgendaEntry, counted, forget_settled, outlook
from harness.execution.data import check_data
from harness.interface.options import Arguments
from harness.interface.request import data_root, make_request
from harness.planning.plan import Plan
from harness.planning.settle import Checksums
from harness.planning.suite import Source

HEADERS = ("id", "kind", "place", "layer", "repetition", "state", "time")


@dataclass(frozen=True, repr=False)
class Outlook:
    """The trials that a run would have; printed, they are a table with the counts and the time that is left.

    Attributes:
        plan: the trials and what a report of them needs.
        folder: of the run, `out/<suite>`.
        entries: every trial that is due with its state in the folder, and its estimated seconds.
        remarks: counts, the time that is left, and remarks on the data, also why a run would stop because of them.
    """

    plan: Plan
    folder: Path
    entries: tuple[AgendaEntry, ...]
    remarks: tuple[str, ...]

    def __repr__(self) -> str:
        from tabulate import tabulate

        table = tabulate(map(_line, self.entries), headers=HEADERS, tablefmt="simple", disable_numparse=True)
        return "\n".join([table, "", *self.remarks])


@taking(Arguments)
def plan(suite: Source, **arguments: Any) -> Outlook:
    """Return the trials that `harness.run` would have with these arguments, and the state of each; nothing is trained.

    Args:
        suite: as of `harness.run`.
        **arguments: see below.

    Raises:
        UserError: an argument or the suite (SuiteError) is wrong. Missing data are remarks.
    """
    from harness.core.provenance.sources import Sources

    options = check(Arguments, arguments)
    missing, remarks = list[str](), list[str]()

    def check_now(data: Sequence[DataRef], optional: Collection[DataRef]) -> Checksums:
        try:
            return check_data(data, data_root(options.data), offline=True, tell=remarks.append, optional=optional)
        except (DataMissing, DataError) as error:
            missing.append(f"\na run would stop, because of its data:\n{error}")
            return {}

    request = make_request(suite, options, check_now, remarks.append)
    entries = request.entries(Sources().of)
    forget_settled(entries, request.folder)
    at_once = request.executor.at_once([entry.trial for entry in entries if entry.runs])
    about = [f"{request.plan.heading}: {counted(entries)}", *outlook(entries, at_once, options.stale)]
    return Outlook(request.plan, request.folder, tuple(entries), (*about, *remarks, *missing))


def _line(entry: AgendaEntry) -> tuple[str, ...]:
    trial = entry.trial
    time = "" if not entry.runs else "?" if entry.seconds is None else shown_seconds(entry.seconds)
    return trial.id, trial.kind, trial.place, ", ".join(trial.rows), trial.repeat, entry.text(), time
