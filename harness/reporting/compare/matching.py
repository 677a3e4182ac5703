"""Which trials of two runs belong together, and what stands against comparing them.

They must rest on the same data (settings and checksum) and the same source; times on the same machine. Other settings
may differ: that is the change to be judged, and it is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from harness.core.records import Record
from harness.core.sources import changes
from harness.core.trial import Trial
from harness.kinds.density.likelihoods import BELOW_FLOOR, UNITS
from harness.kinds.examination.tables import MEASURES
from harness.planning.plan import Plan
from harness.reporting.frame import read_records, record_lines, shortened
from harness.reporting.machines import described, machine_of
from harness.reporting.tables.cells import OPERATIONS

Line = Mapping[str, Any]
"""A row of a record, as `frame.record_lines` gives it."""

LISTED = 3  # of differing settings or files, the rest as a number


class Place(NamedTuple):
    """Where trials of several seeds or processes belong together: a data set, timed case or question, and a layer."""

    what: str
    layer: str


@dataclass(frozen=True)
class Pair:
    """One trial (of a runtime trial one timed case) in both runs.

    Attributes:
        member: which of its place: "seed 0", "process 1".
        kind, unit: of the trial; of its measure.
        first, second: the lines of results; None where a run has none.
        obstacle: why they cannot be compared; None where they can.
        fault: what has become worse (True) or better (False) beside any measure: a trial that failed; None: neither.
        remarks: what else differs between them.
    """

    place: Place
    member: str
    kind: str
    unit: str
    first: Line | None
    second: Line | None
    obstacle: str | None = None
    fault: tuple[bool, str] | None = None
    remarks: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[float | None, float | None]:
        """The measure in both."""
        name = {"runtime": "median_ms", "parameters": "parameters"}.get(self.kind, self.unit)
        one, other = (None if line is None or line["status"] != "ok" else line.get(name) for line in self.sides)
        return one, other

    @property
    def sides(self) -> tuple[Line | None, Line | None]:
        """Both lines."""
        return self.first, self.second

    @property
    def change(self) -> float | None:
        """second - first; of times and counts as a part of the first. None where they are not to be compared."""
        one, other = self.values
        if self.obstacle is not None or self.fault is not None:
            return None
        if self.kind == "examination":  # what is computed without chance differs, which is a fault, or does not
            return 0.0
        if one is None or other is None:
            return None
        if self.kind != "density" and one == 0:
            return None
        return other - one if self.kind == "density" else other / one - 1


class Run(NamedTuple):
    """A plan, its trials by the cell that they fill, and its records by id."""

    plan: Plan
    trials: Mapping[tuple[Any, ...], Trial]
    records: Mapping[str, Record]

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Of OUT/<suite>; a UserError names what cannot be read."""
        plan = Plan.load(folder)
        records = read_records(folder / "records", [trial.id for trial in plan.trials])
        return cls(plan, {trial.cell: trial for trial in plan.trials}, {record.id: record for record in records})


def matched(first: Run, second: Run, other_code: bool) -> Iterator[Pair]:
    """Every trial of either run, a timed case by itself, in the order of the second run's plan."""
    for key in dict.fromkeys([*second.trials, *first.trials]):
        trials = first.trials.get(key), second.trials.get(key)
        records = tuple(
            None if trial is None else run.records.get(trial.id)
            for run, trial in zip((first, second), trials, strict=True)
        )
        sides = [
            {} if record is None or trial is None else _by_case(record, trial)
            for record, trial in zip(records, trials, strict=True)
        ]
        known = next(trial for trial in reversed(trials) if trial is not None)
        for case in dict.fromkeys([*sides[1], *sides[0]]) or [(None, None)]:
            pair = _pair(known, case, trials, records, (sides[0].get(case), sides[1].get(case)), other_code)
            claim = next((one.name for one in second.plan.sections if one.head.suite == known.suite), None)
            if claim is None:
                yield pair
            else:  # several of which may have a data set of one name
                yield replace(pair, place=pair.place._replace(what=f"{claim}: {pair.place.what}"))


def _by_case(record: Record, trial: Trial) -> dict[tuple[str | None, str | None], Line]:
    return {(line.get("layer"), line.get("operation")): line for line in record_lines(record, trial)}


def _pair(
    known: Trial,
    case: tuple[str | None, str | None],
    trials: tuple[Trial | None, ...],
    records: tuple[Record | None, ...],
    lines: tuple[Line | None, Line | None],
    other_code: bool,
) -> Pair:
    obstacle, fault, remarks = None, None, []
    row = case[0]
    for name, trial, line in zip("AB", trials, lines, strict=True):
        if trial is None:
            obstacle = f"no such trial in {name}"
        elif line is None:
            obstacle = obstacle or f"not run in {name}"
    one, other = records
    if obstacle is None and one is not None and other is not None:
        data, code, rest = _differences(one, other, row)
        if data:
            obstacle = f"data differ: {listed(data)}"
        elif code and not other_code:
            obstacle = f"source differs: {listed(code)}"
        elif one.trial["kind"] == "runtime" and machine_of(one) != machine_of(other):
            machines = " and ".join(described(machine_of(record)) for record in (one, other))
            obstacle = f"times of different machines: {machines}"
        remarks += [f"settings: {listed(rest)}"] if rest else []
        remarks += [f"source: {listed(code)}"] if code else []
    kind, unit = _measure(known, lines)
    if obstacle is None:
        obstacle, fault = _outcome(lines, unit)
    return Pair(_place(known, case), known.repeat, kind, unit, *lines, obstacle, fault, tuple(remarks))


def _measure(trial: Trial, lines: tuple[Line | None, Line | None]) -> tuple[str, str]:
    """Kind and unit: the name of a likelihood's column, or "ms"."""
    if trial.kind != "density":
        return trial.kind, "ms" if trial.kind == "runtime" else ""
    units = [line["unit"] for line in lines if line is not None and line.get("unit")]
    return trial.kind, units[0] if units else "nats_per_dim"


def _outcome(lines: tuple[Line | None, Line | None], unit: str) -> tuple[str | None, tuple[bool, str] | None]:
    """(obstacle, fault) of two trials that rest on the same data and source."""
    ends = [_end(line) for line in lines if line is not None]
    if ends[0] is not None and ends[1] is not None:
        return f"no value in either: {ends[0]} in A, {ends[1]} in B", None
    if ends[0] is not None or ends[1] is not None:
        return None, ((True, f"{ends[1]} in B") if ends[1] is not None else (False, f"{ends[0]} in A"))
    if unit in UNITS and len({line.get("unit", unit) for line in lines if line is not None}) > 1:
        return "likelihoods in different units", None
    return None, _changed(*(line or {} for line in lines))


def _changed(one: Line, other: Line) -> tuple[bool, str] | None:
    """The fault of an examination that found something else."""
    if one.get("kind") != "examination":
        return None
    names = [name for name in MEASURES[one["examine"]] if _differ(one.get(name), other.get(name))]
    found = [f"{name} is {one.get(name)} in A, {other.get(name)} in B" for name in names]
    return (True, listed(found)) if found else None


def _differ(one: Any, other: Any) -> bool:
    """By more than rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
    return bool(one != other)


def _end(line: Line) -> str | None:
    """What stands in place of a value that counts; None where there is one."""
    if line["status"] != "ok":
        return f"{line['status']} ({shortened(line.get('reason') or line.get('audit_reason') or 'no reason given')})"
    if line.get("audit") != "failed" and not line.get("below_floor"):
        return None
    return f"audit failed ({shortened(line.get('audit_reason') or BELOW_FLOOR)})"


def _differences(one: Record, other: Record, row: str | None) -> tuple[list[str], list[str], list[str]]:
    """What differs of the data, of the source, and of other settings, each as texts."""
    mine, theirs = (_settings(record.trial, row) for record in (one, other))
    data: list[str] = []
    code: list[str] = []
    rest: list[str] = []
    for name in dict.fromkeys([*mine, *theirs]):
        if mine.get(name) != theirs.get(name):
            text = f"{name} ({mine.get(name)} and {theirs.get(name)})"
            (data if name.startswith("data.") else code if name.endswith(".source") else rest).append(text)
    sources = [record.environment.get("sources") for record in (one, other)]
    if sources[0] is None or sources[1] is None:
        code.append("not every record says what source made it")
    else:
        code += changes(sources[0], sources[1])
    return data, code, rest


def _settings(trial: Mapping[str, Any], row: str | None) -> dict[str, Any]:
    """Name -> value of all settings that can matter to this row."""
    own = {name: value for name, value in trial.items() if name not in ("suite", "layers", "operations", "process")}
    if "layers" in trial:
        own["layer"] = next((layer for layer in trial["layers"] if layer["row"] == row), {})
    return dict(_flat(own))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if name.endswith("options") and isinstance(value, list):
        value = dict(value)
    if not isinstance(value, dict):
        yield name, value
        return
    for key, item in value.items():
        yield from _flat(item, f"{name}.{key}" if name else key)


def _place(trial: Trial, case: tuple[str | None, str | None]) -> Place:
    layer, operation = case
    what = [trial.place] if operation is None else [trial.place, OPERATIONS.get(operation, operation)]
    return Place(", ".join(what), layer or ", ".join(trial.rows))


def listed(texts: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = len(texts) - LISTED
    return ", ".join(texts[:LISTED]) + (f" and {more} more" if more > 0 else "")
