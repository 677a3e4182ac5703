"""`harness.plan`: the trials of a suite, the state of each, and what a run would do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.arguments import check, taking
from harness.core.errors import DataError, DataMissing
from harness.core.run_options import Stale, shown_seconds
from harness.core.settings import DataRef
from harness.execution.agenda import AgendaEntry, counted, forget_settled, outlook, total_seconds
from harness.execution.data import check_data
from harness.interface.options import Arguments
from harness.interface.request import data_root, make_request
from harness.planning.plan import Plan
from harness.planning.settle import Checksums
from harness.planning.suite import Source

if TYPE_CHECKING:
    import pandas as pd

HEADERS = ("id", "kind", "place", "layer", "repetition", "state", "time")


@dataclass(frozen=True)
class Outlook:
    """The trials that a run would have; printed, they are a table with the counts and the time that is left.

    Attributes:
        plan: the trials and what a report of them needs.
        folder: of the run, `out/<suite>`.
        entries: every trial that is due with its state in the folder.
        at_once: the number of trials that run side by side.
        stale: whether records of changed source are kept.
        remarks: on the data, and why a run would stop because of them.
    """

    plan: Plan
    folder: Path
    entries: tuple[AgendaEntry, ...]
    at_once: int
    stale: Stale
    remarks: tuple[str, ...]

    @property
    def remaining(self) -> tuple[AgendaEntry, ...]:
        """The trials that a run executes."""
        return tuple(entry for entry in self.entries if entry.runs)

    @property
    def seconds(self) -> float | None:
        """The estimated duration of a run, of the trials that have an estimate; None if none has."""
        return total_seconds(self.remaining, self.at_once)

    @property
    def frame(self) -> pd.DataFrame:
        """The trials as a pandas frame: identity, state, and the estimated seconds of those that a run does."""
        import pandas as pd

        lines = [(*_identity(entry), entry.seconds) for entry in self.entries]
        types = dict.fromkeys(HEADERS, "string") | {"time": "Float64"}
        return pd.DataFrame(lines, columns=list(HEADERS), dtype=object).astype(types)

    def __repr__(self) -> str:
        return f"<{self.plan.heading}: {counted(self.entries)}>"

    def __str__(self) -> str:
        from tabulate import tabulate

        lines = [(*_identity(entry), _time(entry)) for entry in self.entries]
        table = tabulate(lines, headers=HEADERS, tablefmt="simple", disable_numparse=True)
        about = [f"{self.plan.heading}: {counted(self.entries)}", *outlook(self.entries, self.at_once, self.stale)]
        return "\n".join([table, "", *about, *self.remarks])


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
    return Outlook(request.plan, request.folder, tuple(entries), at_once, options.stale, (*remarks, *missing))


def _identity(entry: AgendaEntry) -> tuple[str, ...]:
    trial = entry.trial
    return trial.id, trial.kind, trial.place, ", ".join(trial.rows), trial.repeat, entry.text()


def _time(entry: AgendaEntry) -> str:
    if not entry.runs:
        return ""
    return "?" if entry.seconds is None else shown_seconds(entry.seconds)
