"""The results of a run as one typed pandas frame: a row for every measure of every planned trial, in plan order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from harness.core.archive import read_records
from harness.core.records import AUDIT_FAILED, Record, read_arrays, verdict
from harness.core.texts import shortened, visible
from harness.core.trial import TRIALS, Trial, column_types, trial_class
from harness.planning.plan import Plan
from harness.planning.suite_model import SUITES
from harness.reporting.origins import Origin, mixtures

if TYPE_CHECKING:
    import numpy as np


MISSING = "missing"
"""The status of a planned trial that has no record yet."""

DAMAGED = "damaged"
"""The status of a planned trial whose record cannot be read."""

ELSEWHERE = "elsewhere"
"""The status of a runtime trial in a report of another machine's times."""

CONFLICT = "conflict"
"""The note of a record that another one of a merge contradicts."""

TABLE = "results.csv"
REASON_LENGTH = 300

FORMULA = ("=", "+", "-", "@", "\t")
"""The beginnings of texts that a spreadsheet takes for formulas."""

BESIDE = {"machine": "string", "failure": "string", "cause": "string", "notes": "object"}
"""The columns that results.csv leaves out: a word and a sentence on why a row has no value, and the record's notes."""

Row = Any
"""A row of a frame, of `rows_of`."""

Machine = tuple[str | None, ...]


@dataclass(frozen=True, eq=False, repr=False)  # compared and hashed by identity
class Results:
    """The results of a run, from which every table, figure and verdict is made.

    Attributes:
        plan: the planned trials.
        frame: one row per measure of every planned trial, in plan order, with the typed columns of all kinds of trials
            and `BESIDE`; what was not measured is <NA>.
        records: by trial id, in plan order.
        folder: of the run, OUT/<suite>, or its archive.
        damaged: by trial id, why a record cannot be read.
    """

    plan: Plan
    frame: pd.DataFrame
    records: Mapping[str, Record]
    folder: Path
    damaged: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the results in OUT/<suite> or an archive; raise UserError if its plan or archive cannot be read."""
        plan = Plan.load(folder)
        stored = read_records(folder, plan.trials)
        return cls.of(plan, stored.records.values(), folder, stored.damaged)

    @classmethod
    def of(
        cls,
        plan: Plan,
        records: Iterable[Record],
        folder: Path = Path(),
        damaged: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Return the results of a plan from its records, in any order; those of other trials are left out.

        Runtime trials that were measured on another machine than most are rows without a time.
        """
        by_id = {record.id: record for record in records}
        planned = {trial.id: by_id[trial.id] for trial in plan.trials if trial.id in by_id}
        unread = {trial.id: damaged[trial.id] for trial in plan.trials if trial.id in damaged}
        machine = timing_machine(planned.values())
        plan = plan.model_copy(update={"trials": plan.due(planned)})
        lines: list[dict[str, Any]] = []
        for trial in plan.trials:
            record = planned.get(trial.id)
            if record is None:
                missing = (DAMAGED, damaged[trial.id]) if trial.id in damaged else (MISSING, "not yet run")
                rows = _lines(trial, *missing, [])
            elif (why := elsewhere(record, machine)) is not None:
                rows = _lines(trial, ELSEWHERE, why, [])
            else:
                about = {"machine": machine_name(record), "notes": record.notes}
                rows = [line | about for line in _lines(trial, record.status, record.reason, record.rows)]
            quoted = SUITES[trial.kind].quoted(trial, plan.published) if trial.kind in SUITES else {}
            lines += [line | quoted for line in rows]
        ordered = {trial.id: planned[trial.id] for trial in plan.trials if trial.id in planned}
        return cls(plan, typed_frame(lines), ordered, folder, unread)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The columns of results.csv: those of the kinds of trials that occur."""
        kinds = set(self.frame["kind"])
        names = (name for kind in sorted(TRIALS) if kind in kinds for name in TRIALS[kind].columns)
        return self.frame[list(dict.fromkeys(names))]

    @cached_property
    def parts(self) -> tuple[Self, ...]:
        """The results of each section of the plan, by themselves."""
        plans = map(self.plan.part, self.plan.sections)
        return tuple(self.of(plan, self.records.values(), self.folder, self.damaged) for plan in plans)

    def of_kind(self, kind: str) -> pd.DataFrame:
        """Return the rows of trials of this kind, with its columns and `BESIDE`."""
        return self.frame.loc[self.frame["kind"] == kind, [*trial_class(kind).columns, *BESIDE]]

    def arrays(self, trial: str) -> dict[str, np.ndarray] | None:
        """Return the arrays that a trial stored beside its record; None where there are none."""
        record = self.records.get(trial)
        if record is None or record.arrays is None:
            return None
        arrays = read_arrays(self.folder / "records", record.arrays)
        return None if arrays is None else dict(arrays)

    @property
    def ok(self) -> bool:
        """True if every trial counts as ok, as `unsupported` does where the suite declares it."""
        states = {name: verdict(record) for name, record in self.records.items()}
        trials, declared = self.plan.trials, self.plan.unsupported
        return all(trial.id in states and trial.accepts(states[trial.id], declared) for trial in trials)

    def __repr__(self) -> str:
        return f"<Results of {self.plan.heading}, in {self.folder}: {self.status_line}>"

    @cached_property
    def conflicts(self) -> dict[str, str]:
        """Contradictions by trial id: between merged records, and of a record to its prerequisites."""
        noted = {name: record.notes for name, record in self.records.items()}
        contradictions = {name: notes[CONFLICT] for name, notes in noted.items() if CONFLICT in notes}
        for trial in self.plan.trials:
            record = self.records.get(trial.id)
            if record is not None and (contradiction := trial.outdated(record, self.records)) is not None:
                contradictions[trial.id] = contradiction
        return contradictions

    @cached_property
    def warnings(self) -> list[str]:
        """The conflicts, the records that cannot be read, and the differences of their origins, a sentence each."""
        conflicts = [f"Conflict: {name}: {text}" for name, text in self.conflicts.items()]
        return [*conflicts, *(f"Damaged: {why}" for why in self.damaged.values()), *mixtures(self.origins)]

    @property
    def origins(self) -> list[Origin]:
        """The records, each with its place in the plan's tables."""
        trials = (trial for trial in self.plan.trials if trial.id in self.records)
        return [(self.plan.cell(trial)[:-1], self.records[trial.id]) for trial in trials]

    @cached_property
    def statuses(self) -> dict[str, str]:
        """Trial id -> status; a trial of several rows has the worst of their statuses."""
        failed = (self.frame["status"] == "ok") & (self.frame["audit"] == "failed")
        states = self.frame[["id"]].assign(state=self.frame["status"].mask(failed.fillna(False), AUDIT_FAILED))
        states["rank"] = [{"ok": 2, "unsupported": 1}.get(state, 0) for state in states["state"]]
        worst = states.sort_values("rank", kind="stable").drop_duplicates("id")
        return dict(zip(worst["id"], worst["state"], strict=True))

    @property
    def suite_line(self) -> str:
        """The suite, the version of the project that ran it, and the digest of its trials."""
        versions = {record.environment.get("versions", {}).get("invertbench") for record in self.records.values()}
        of = ", ".join(sorted(filter(None, versions))) or "of an unknown version"
        return f"Suite {self.plan.suite}, profile {self.plan.profile}, trials {self.plan.digest}, invertbench {of}."

    @property
    def status_line(self) -> str:
        """The number of trials by status: "45 trials: 43 ok, 1 diverged, 1 diverged in tuning"."""
        trials = {trial.id: trial for trial in self.plan.trials}
        counts = Counter(
            f"{state} in {trials[name].kind}" if state in trials[name].losses else state
            for name, state in self.statuses.items()
        )
        total = counts.total()
        parts = [f"{counts.pop('ok', 0)} ok", *(f"{count} {status}" for status, count in sorted(counts.items()))]
        return f"{total} trial{'s' if total != 1 else ''}: {', '.join(parts)}"


def rows_of(frame: pd.DataFrame) -> Iterator[Row]:
    """Return the rows of a frame one by one; their columns are attributes."""
    return iter(frame.itertuples())


def groups_of(frame: pd.DataFrame, by: str | list[str]) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Return (value or values of the columns, their rows), in order of first appearance."""
    return iter(frame.groupby(by, sort=False))


def _lines(trial: Trial, status: str, reason: str | None, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with the trial's status and identity; of a trial without rows one for each of its cases."""
    common: dict[str, Any] = {"status": status, "reason": reason, "notes": {}}
    # A row that states its status has the reason that it states, or none.
    return [
        {**common, **({"reason": None} if "status" in row else {}), **row, **trial.identity}
        for row in rows or trial.cases
    ]


def typed_frame(lines: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows by name as a frame with the columns of all kinds of trials and `BESIDE`, typed."""
    types = column_types() | BESIDE
    frame = pd.DataFrame(list(lines), columns=list(types), dtype=object).astype(types)
    frame["failure"] = frame["status"].replace("ok", "no value")
    frame["cause"] = frame["reason"].fillna(frame["audit_reason"]).fillna("no reason given").map(shortened_reason)
    return frame


def machine_of(record: Record) -> Machine:
    """Return the machine of a record: GPU, processor, cores, and the host if it is named."""
    about = record.environment
    gpu = about.get("cuda", {}).get("name")
    return gpu, about.get("cpu"), str(about.get("cores")), about.get("host")


def machine_name(record: Record) -> str | None:
    """Return the name of the GPU if one was used, else of the processor."""
    name: str | None = record.environment.get("cuda", {}).get("name") or record.environment.get("cpu")
    return name


def timing_machine(records: Iterable[Record]) -> Machine | None:
    """Return the machine that has measured most of the runtime trials, the first of equals; None if none has."""
    counts = Counter(machine_of(record) for record in records if is_timed(record))
    return counts.most_common(1)[0][0] if counts else None


def is_timed(record: Record) -> bool:
    """Return whether the record holds times of layers; one of a failed trial holds none, and fits any machine."""
    return trial_class(record.trial["kind"]).alone and bool(record.rows)


def elsewhere(record: Record, machine: Machine | None) -> str | None:
    """Return why the times of a record were not measured on the machine; None if they were."""
    if machine is None or not is_timed(record) or machine_of(record) == machine:
        return None
    return (
        f"measured on another machine ({described(machine_of(record))}, not {described(machine)}): times of different "
        "machines are never pooled"
    )


def described(machine: Machine) -> str:
    """Return a machine in words."""
    gpu, cpu, cores, host = machine
    return ", ".join(filter(None, (gpu, cpu, f"{cores} cores", host)))


def shortened_reason(text: str) -> str:
    """Truncate a reason for display; the record keeps the full text."""
    return shortened(text, REASON_LENGTH) + " (the record has the rest)" * (len(text) > REASON_LENGTH)


def csv_bytes(frame: pd.DataFrame) -> bytes:
    """Return the frame as CSV: floats with all their digits, empty where there is no value.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """

    def safe(value: Any) -> Any:
        shown = visible(value) if isinstance(value, str) else value  # a carriage return would end the line
        return f"'{shown}" if isinstance(shown, str) and shown.startswith(FORMULA) else shown

    texts = frame.select_dtypes(["object", "string"])
    changed = {str(name): column.map(safe).astype(column.dtype) for name, column in texts.items()}
    return frame.assign(**changed).to_csv(index=False, lineterminator="\n").encode()
