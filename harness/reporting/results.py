"""Records to one flat table of results: a line for every measure of every planned trial, in plan order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.core.kinds import KINDS
from harness.core.records import Record, read_record
from harness.core.trial import Trial
from harness.reporting.machines import ELSEWHERE, Machine, elsewhere, machine_name, timing_machine

if TYPE_CHECKING:
    from harness.planning.plan import Plan

MISSING = "missing"
"""The status of a planned trial that has no record yet."""


def read_records(folder: Path, ids: Iterable[str]) -> list[Record]:
    """The records `folder/<id>.json` that exist, in the order of `ids`; a damaged one raises UserError."""
    paths = (folder / f"{name}.json" for name in ids)
    return [read_record(path) for path in paths if path.exists()]


def results(records: Iterable[Record], plan: Plan) -> pd.DataFrame:
    """Return one line per measure of every planned trial, with typed columns; what was not measured is <NA>.

    Args:
        records: in any order.
        plan: the trials in their order; one without a record has a line with status "missing".

    Returns:
        The columns of the kinds of trial that occur.
    """
    lines = plan_lines(records, plan)
    kinds = {line["kind"] for line in lines}
    types: dict[str, str] = {}
    for kind in KINDS:
        if kind in kinds:
            types |= {name: dtype for name, dtype in KINDS[kind].columns.items() if name not in types}
    return pd.DataFrame(lines, columns=list(types), dtype=object).astype(types)


def record_lines(record: Record, trial: Trial) -> list[dict[str, Any]]:
    """A record's rows with the trial's identity, status and notes in each; a trial without rows still gives lines.

    A runtime trial that failed as a whole gives one line for each layer and operation that it was to time.
    """
    lines = _lines(trial, record.status, record.reason, record.rows)
    return [line | {"machine": machine_name(record), "notes": record.notes} for line in lines]


def plan_lines(records: Iterable[Record], plan: Plan) -> list[dict[str, Any]]:
    """The lines of every planned trial, in plan order, with published counts beside those built.

    Runtime trials that were measured on another machine than most are lines without a time.
    """
    by_id = {record.id: record for record in records}
    machine = timing_machine(by_id.values())
    lines = [line for trial in plan.trials for line in _planned_lines(trial, by_id, machine)]
    _add_published(lines, plan)
    return lines


def _planned_lines(trial: Trial, records: Mapping[str, Record], machine: Machine | None) -> list[dict[str, Any]]:
    record = records.get(trial.id)
    if record is not None:
        why = elsewhere(record, machine)
        return record_lines(record, trial) if why is None else _lines(trial, ELSEWHERE, why, [])
    return _lines(trial, MISSING, "not yet run", [])


def _lines(trial: Trial, status: str, reason: str | None, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    common = {
        "id": trial.id,
        "kind": trial.kind,
        "suite": trial.suite,
        "profile": trial.profile,
        "device": trial.device,
        "status": status,
        "reason": reason,
    } | trial.fields
    if trial.data_sets:
        common["data"] = trial.data_sets[0].model_dump(mode="json")
    # A row with a status of its own has a reason of its own, or none.
    return [{**common, **({"reason": None} if "status" in row else {}), **row} for row in rows or trial.cases]


def _add_published(lines: Iterable[dict[str, Any]], plan: Plan) -> None:
    """Set the published count on the one line of its layer that has the width it was published for."""
    if plan.published is None or plan.published.measure != "parameters":
        return
    for line in lines:
        if line["kind"] == "parameters":
            quoted = plan.published.values.get(line["layer"], {})
            if plan.published.width(line["layer"], line["dataset"]) in (None, line["width"]):
                line["published"] = quoted.get(line["dataset"])


def csv_bytes(frame: pd.DataFrame) -> bytes:
    """The frame as CSV: floats with all their digits, empty where there is no value."""
    return frame.to_csv(index=False, lineterminator="\n").encode()
