"""Join the frames of two runs row by row, and find what prevents the comparison of two rows.

Two trials are comparable if they have the same data (settings and checksum) and the same source. Other settings may
differ: they are the change to be judged, and are listed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.core.provenance.sources import changes
from harness.core.records import Record
from harness.core.texts import first_few
from harness.core.trial import IDENTITY, ORIGIN, OUTCOME, Trial
from harness.reporting.compare.measure import Measure, difference, flat
from harness.reporting.frame import DAMAGED, ELSEWHERE, MISSING, Results, Row, described, machine_of, rows_of
from harness.reporting.origins import LISTED
from harness.reporting.report import report_class
from harness.reporting.tables.cells import OPERATIONS

ABSENT = {MISSING: "not run", DAMAGED: "damaged", ELSEWHERE: "measured on another machine than most trials"}

Key = tuple[tuple[str, ...], tuple[Any, ...]]
"""The cell of a trial, and which of its rows."""


class Place(NamedTuple):
    """The place in a table that repetitions share: data set, timed case or quantity, and layer."""

    what: str
    layer: str


class ComparedRow(NamedTuple):
    """One row of a run, with its trial and its record; None instead of <NA> in its columns."""

    row: Row
    trial: Trial
    record: Any  # a `Record`; None without one


@dataclass(frozen=True)
class Pair:
    """One row in both runs.

    Attributes:
        repeat: the repetition within its place: "seed 0", "process 1".
        rows: of A and of B; None where a run has no such row.
        obstacle: why they cannot be compared.
        fault: (B is worse, reason) of a failure in one run only, or of other results.
        remarks: other differences between the trials.
    """

    place: Place
    repeat: str
    measure: Measure
    rows: tuple[Row | None, Row | None]
    obstacle: str | None = None
    fault: tuple[bool, str] | None = None
    remarks: tuple[str, ...] = ()

    @property
    def change(self) -> float | None:
        """The change from A to B; None where the rows are not compared."""
        first, second = self.rows
        if self.obstacle is not None or self.fault is not None or first is None or second is None:
            return None
        return self.measure.change(first, second)


def pairs(first: Results, second: Results, other_code: bool) -> Iterator[Pair]:
    """Yield every row of either run, in the order of the second run's plan; no trials that only prepare others."""
    before, after = _entries(first), _entries(second)
    ranks = {cell: rank for rank, cell in enumerate(dict.fromkeys(cell for cell, _ in [*after, *before]))}
    sections = {section.head.suite: f"{section.name}: " for section in reversed(second.plan.sections)}
    run_cells = [{cell for cell, _ in side} for side in (before, after)]
    for key in sorted(after | before, key=lambda key: ranks[key[0]]):
        row, trial, _ = after.get(key) or before[key]
        case = [OPERATIONS.get(text, text) for name, text in _case(trial, row).items() if name != "layer"]
        place = Place(sections.get(trial.suite, "") + ", ".join([trial.place, *case]), row.layer)
        entries = before.get(key), after.get(key)
        absences = [_absence(entry, key[0] in cells) for entry, cells in zip(entries, run_cells, strict=True)]
        missing = [f"{why} in {name}" for name, why in zip("AB", absences, strict=True) if why is not None]
        measure = report_class(trial.kind).measure
        if missing:
            rows = entries[0] and entries[0].row, entries[1] and entries[1].row
            obstacle = next((text for text in missing if text.startswith("no such")), missing[0])
            yield Pair(place, trial.repeat, measure, rows, obstacle)
        else:
            yield _pair(place, measure, before[key], after[key], other_code)


def _entries(results: Results) -> dict[Key, ComparedRow]:
    trials = {trial.id: trial for trial in results.plan.trials if trial.stage}
    frame = results.frame[results.frame["id"].isin(trials)].astype(object)
    rows = rows_of(frame.where(frame.notna(), None))
    entries = [ComparedRow(row, trials[row.id], results.records.get(row.id)) for row in rows]
    return {(results.plan.cell(entry.trial), tuple(_case(entry.trial, entry.row).values())): entry for entry in entries}


def _absence(entry: ComparedRow | None, planned: bool) -> str | None:
    """Return why a run has no result in a row; None if it has one."""
    return ABSENT.get(entry.row.status) if entry else "not run" if planned else "no such trial"


def _case(trial: Trial, row: Row) -> dict[str, Any]:
    """Return the columns that separate the rows of one trial."""
    return {name: getattr(row, name) for name in trial.cases[0]}


def _pair(place: Place, measure: Measure, first: ComparedRow, second: ComparedRow, other_code: bool) -> Pair:
    """Return the pair of two rows whose trials have records."""
    data, code, settings = _differences(first.record, second.record, place.layer)
    machines = [machine_of(record) for record in (first.record, second.record)]
    failures = [_failure(measure, entry.row) for entry in (first, second)]
    obstacle, fault = None, None
    if data:
        obstacle = f"data differ: {first_few(data, LISTED)}"
    elif code and not other_code:
        obstacle = f"source differs: {first_few(code, LISTED)}"
    elif second.trial.alone and machines[0] != machines[1]:
        obstacle = f"times of different machines: {' and '.join(map(described, machines))}"
    elif (obstacle := measure.obstacle(first.row, second.row)) is not None:
        pass
    elif None not in failures:
        obstacle = f"no value in either: {failures[0]} in A, {failures[1]} in B"
    elif failures[1] is not None:
        fault = True, f"{failures[1]} in B"
    elif failures[0] is not None:
        fault = False, f"{failures[0]} in A"
    elif measure.value is None and (unequal := _unequal_columns(first, second)):
        fault = True, first_few(unequal, LISTED)
    named = (("settings", settings), ("source", code))
    remarks = [f"{name}: {first_few(texts, LISTED)}" for name, texts in named if texts]
    remarks += measure.remarks(first.row, second.row)
    return Pair(place, second.trial.repeat, measure, (first.row, second.row), obstacle, fault, tuple(remarks))


def _failure(measure: Measure, row: Row) -> str | None:
    """Return why a row has no value that counts; None if it has one."""
    if row.status != "ok":
        return f"{row.status} ({row.cause})"
    doubt = measure.doubt(row)
    return None if doubt is None else f"audit failed ({doubt})"


def _unequal_columns(first: ComparedRow, second: ComparedRow) -> list[str]:
    """Return the measures that differ by more than rounding, with both values."""
    names = [name for name in second.trial.columns if name not in IDENTITY | OUTCOME | ORIGIN]
    values = [(name, getattr(first.row, name), getattr(second.row, name)) for name in names]
    return [f"{name} is {one} in A, {other} in B" for name, one, other in values if not _equal(one, other)]


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-9)
    return bool(first == second)


def _differences(first: Record, second: Record, layer: str) -> tuple[list[str], list[str], list[str]]:
    """Return the differences in the data, in the source, and in other settings, each as texts."""
    before, after = (_settings(record.trial, layer) for record in (first, second))
    data: list[str] = []
    code: list[str] = []
    settings: list[str] = []
    for name in before | after:
        if before.get(name) != after.get(name):
            kind = data if name.startswith("data.") else code if name.endswith(".source") else settings
            kind.append(difference(name, before.get(name), after.get(name)))
    sources, others = (record.environment.get("sources") for record in (first, second))
    if sources is None or others is None:
        code.append("not every record says what source made it")
    else:
        code += changes(sources, others)
    return data, code, settings


def _settings(trial: Mapping[str, Any], layer: str) -> dict[str, Any]:
    """Return all settings that can matter to this layer, flat, by dotted name."""
    settings = {
        name: value for name, value in trial.items() if name not in ("suite", "layers", "operations", "process")
    }
    if "layers" in trial:
        settings["layer"] = next((entry for entry in trial["layers"] if entry["row"] == layer), {})
    return dict(flat(settings))
