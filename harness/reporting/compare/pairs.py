"""Match the trials of two runs, and find what prevents their comparison.

Two trials are comparable if they have the same data (settings and checksum) and the same source. Other settings may
differ: they are the change to be judged, and are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.core.archive import read_records
from harness.core.provenance.sources import changes
from harness.core.records import Record
from harness.core.trial import Trial
from harness.planning.plan import Plan
from harness.reporting.compare.measure import Measure, Row, measure_of
from harness.reporting.frame import shortened
from harness.reporting.tables.cells import OPERATIONS

LISTED = 3  # differing settings or files; the others are counted

Case = tuple[str | None, str | None]
"""Layer and operation of a row, of which a record has one or several."""


class Place(NamedTuple):
    """The place in a table that repetitions share: data set, timed case or quantity, and layer."""

    what: str
    layer: str


@dataclass(frozen=True)
class Pair:
    """One row in both runs."""

    place: Place
    repeat: str  # the repetition within its place: "seed 0", "process 1"
    measure: Measure
    first: Row | None  # None where a run has no such row
    second: Row | None
    obstacle: str | None = None  # why they cannot be compared
    fault: tuple[bool, str] | None = None  # (B is worse, reason) of a failure in one run only, or of other results
    remarks: tuple[str, ...] = ()  # other differences between the trials

    @property
    def values(self) -> tuple[float | None, float | None]:
        """The measure in both runs."""
        first, second = (
            self.measure.value(row) if row is not None and row["status"] == "ok" else None
            for row in (self.first, self.second)
        )
        return first, second

    @property
    def change(self) -> float | None:
        """The change from A to B; None where the rows are not compared."""
        if self.obstacle is not None or self.fault is not None or self.first is None or self.second is None:
            return None
        return self.measure.change(self.first, self.second)


class Run(NamedTuple):
    """A run.

    Attributes:
        plan: its plan.
        trials: by the cell that they fill, without those that only prepare others.
        records: by trial id.
        damaged: by trial id, why a record cannot be read.
    """

    plan: Plan
    trials: Mapping[tuple[str, ...], Trial]
    records: Mapping[str, Record]
    damaged: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Read OUT/<suite> or an archive; a UserError names what cannot be read."""
        plan = Plan.load(folder)
        stored = read_records(folder, plan.trials)
        trials = {plan.cell(trial): trial for trial in plan.trials if trial.stage}
        return cls(plan, trials, stored.records, stored.damaged)

    def absence(self, cell: tuple[str, ...]) -> str:
        """Return why a cell has no rows."""
        trial = self.trials.get(cell)
        return "no such trial" if trial is None else "damaged" if trial.id in self.damaged else "not run"

    def rows(self, cell: tuple[str, ...]) -> dict[Case, tuple[Row, Record]]:
        """Return the rows of the trial in a cell, each with its record; empty without a trial or a record."""
        trial = self.trials.get(cell)
        record = None if trial is None else self.records.get(trial.id)
        if trial is None or record is None:
            return {}
        common = trial.fields | {"status": record.status, "reason": record.reason}
        found: dict[Case, tuple[Row, Record]] = {}
        for row in record.rows or trial.cases:
            own = {"reason": None} if "status" in row else {}  # a row with its own status has its own reason, or none
            found[row.get("layer"), row.get("operation")] = (common | own | row, record)
        return found


def pairs(first: Run, second: Run, other_code: bool) -> Iterator[Pair]:
    """Yield every row of either run, in the order of the second run's plan."""
    for cell in dict.fromkeys([*second.trials, *first.trials]):
        trial = second.trials.get(cell) or first.trials[cell]
        part = next((section.name for section in second.plan.sections if section.head.suite == trial.suite), None)
        sides = first.rows(cell), second.rows(cell)
        absent = [f"{run.absence(cell)} in {name}" for name, run in zip("AB", (first, second), strict=True)]
        for case in dict.fromkeys([*sides[1], *sides[0]]) or [(None, None)]:
            found = [side.get(case) for side in sides]
            yield _pair(trial, case, part, found, absent, other_code)


def _pair(
    trial: Trial,
    case: Case,
    part: str | None,
    found: Sequence[tuple[Row, Record] | None],
    absent: Sequence[str],
    other_code: bool,
) -> Pair:
    layer, operation = case
    what = [trial.place] if operation is None else [trial.place, OPERATIONS.get(operation, operation)]
    place = Place((f"{part}: " if part else "") + ", ".join(what), layer or ", ".join(trial.rows))
    measure = measure_of(trial)
    first, second = found
    if first is None or second is None:
        missing = [text for side, text in zip(found, absent, strict=True) if side is None]
        rows = first and first[0], second and second[0]
        return Pair(
            place,
            trial.repeat,
            measure,
            *rows,
            obstacle=next((text for text in missing if text.startswith("no such")), missing[0]),
        )
    data, code, settings = _differences(first[1], second[1], layer)
    remarks = [f"settings: {listed(settings)}"] if settings else []
    remarks += [f"source: {listed(code)}"] if code else []
    remarks += measure.remarks(first[0], second[0])
    fault = None
    if data:
        obstacle: str | None = f"data differ: {listed(data)}"
    elif code and not other_code:
        obstacle = f"source differs: {listed(code)}"
    else:
        obstacle, fault = _outcome(measure, first, second)
    return Pair(place, trial.repeat, measure, first[0], second[0], obstacle, fault, tuple(remarks))


def _outcome(
    measure: Measure, first: tuple[Row, Record], second: tuple[Row, Record]
) -> tuple[str | None, tuple[bool, str] | None]:
    """Return (obstacle, fault) of two rows with the same data and source."""
    obstacle = measure.obstacle(first, second)
    if obstacle is not None:
        return obstacle, None
    one, other = (_failure(measure, row) for row, _ in (first, second))
    if one is not None and other is not None:
        return f"no value in either: {one} in A, {other} in B", None
    if one is not None or other is not None:
        return None, ((True, f"{other} in B") if other is not None else (False, f"{one} in A"))
    faults = measure.faults(first[0], second[0])
    return None, ((True, listed(faults)) if faults else None)


def _failure(measure: Measure, row: Row) -> str | None:
    """Return why a row has no value that counts; None if it has one."""
    if row["status"] != "ok":
        return f"{row['status']} ({shortened(row.get('reason') or row.get('audit_reason') or 'no reason given')})"
    doubt = measure.doubt(row)
    return None if doubt is None else f"audit failed ({doubt})"


def _differences(first: Record, second: Record, layer: str | None) -> tuple[list[str], list[str], list[str]]:
    """Return the differences in the data, in the source, and in other settings, each as texts."""
    before, after = (_settings(record.trial, layer) for record in (first, second))
    data: list[str] = []
    code: list[str] = []
    settings: list[str] = []
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            text = difference(name, before.get(name), after.get(name))
            (data if name.startswith("data.") else code if name.endswith(".source") else settings).append(text)
    sources = [record.environment.get("sources") for record in (first, second)]
    if sources[0] is None or sources[1] is None:
        code.append("not every record says what source made it")
    else:
        code += changes(sources[0], sources[1])
    return data, code, settings


def _settings(trial: Mapping[str, Any], layer: str | None) -> dict[str, Any]:
    """Return all settings that can matter to this layer, flat, by dotted name."""
    own = {name: value for name, value in trial.items() if name not in ("suite", "layers", "operations", "process")}
    if "layers" in trial:
        own["layer"] = next((entry for entry in trial["layers"] if entry["row"] == layer), {})
    return dict(flat(own))


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of nested settings."""
    if name.endswith("options") and isinstance(value, list):
        value = dict(value)
    if not isinstance(value, dict):
        yield name, value
        return
    for key, item in value.items():
        yield from flat(item, f"{name}.{key}" if name else key)


def difference(name: str, first: Any, second: Any) -> str:
    """Return the name of a setting with both of its values."""
    one, other = (f"a list of {len(value)}" if isinstance(value, list) else value for value in (first, second))
    return f"{name} ({one} and {other})"


def listed(texts: Sequence[str]) -> str:
    """Return the first few texts, and the number of the others."""
    more = len(texts) - LISTED
    return ", ".join(texts[:LISTED]) + (f" and {more} more" if more > 0 else "")
