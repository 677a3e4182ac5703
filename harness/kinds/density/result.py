"""The result of a density trial, one typed value; its row of results.csv and the columns of its kind follow from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args

from harness.core.records import AuditVerdict, Record, finite
from harness.core.settings import Unit

Count = int  # at least 0, as the column of a `DensityResult`
Size = float  # at least 0
Share = float  # in [0, 1]


@dataclass(frozen=True, kw_only=True)
class DensityResult:
    """The measures of one trained flow; what was not measured is None.

    `unit` names the measure that is reported, "bits_per_dim" or "nats_per_dim"; `standard_error`, `median`, `worst`,
    `estimate_error`, `importance_weighted`, `validation`, `floor` and `claimed` are in it, and the three parts
    `*_nats_per_dim` sum to `nats_per_dim`. `nats_per_event` is that of whole vectors, in the units of their source.
    `test_events` is the number of events whose mean they are; `test_share` is
    that of the `harness.datasets.Splits`. `options` are those of the layer, as JSON. Under tuning, `candidate` is the
    number of the chosen one of `candidates`, and `chosen` are its settings, as JSON.
    """

    parameters: Count
    masked_free: Count
    learning_rate: Size
    options: str
    candidate: Count | None = None
    candidates: Count | None = None
    chosen: str | None = None
    bits_per_dim: float | None = None
    nats_per_dim: float | None = None
    nats_per_event: float | None = None
    standard_error: Size | None = None
    median: float | None = None
    worst: float | None = None
    test_events: Count | None = None
    estimate_error: Size | None = None
    draws: Count | None = None
    importance_weighted: float | None = None
    prior_nats_per_dim: float | None = None
    log_det_nats_per_dim: float | None = None
    preprocessing_nats_per_dim: float | None = None
    validation: float | None = None
    inverse_error: Size | None = None
    logdet_error: Size | None = None
    condition: Size | None = None
    floor: float | None = None
    below_floor: bool | None = None
    audit: str | None = None
    fid: float | None = None
    kid: float | None = None
    kid_sd: Size | None = None
    precision: Share | None = None
    recall: Share | None = None
    samples: Count | None = None
    extractor: str | None = None
    neighbour_distance: Size | None = None
    neighbour_distance_test: Size | None = None
    steps: Count | None = None
    passes: Count | None = None
    train_seconds: Size | None = None
    unit: str
    audit_reason: str | None = None
    claimed: float | None = None
    best_step: Count | None = None
    stopped_early: bool | None = None
    audit_seconds: Size | None = None
    test_share: Share | None = None

    def row(self) -> dict[str, Any]:
        """Return the measures by name as JSON can hold them: a number that is not finite is None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: finite(value) if isinstance(value, float) else value for name, value in values.items()}

    def notes(self) -> dict[str, str]:
        """Return why a measure is None although it was measured."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: f"the value is {value}"
            for name, value in values.items()
            if isinstance(value, float) and not math.isfinite(value)
        }


AUDITED = {"audit": "verdict"} | {name: name for name in ("inverse_error", "logdet_error", "condition")}
"""Measure -> its name in the audit of the record."""


def result_fault(record: Record, audited: bool) -> str | None:
    """Return why the rows of a record are not those of a `DensityResult`; None if they are.

    Args:
        audited: whether a trial that is ok has the verdict of its audit.
    """
    verdicts = get_args(AuditVerdict) + (() if record.status == "ok" and audited else (None,))
    for row in record.rows:
        for name, allowed in (("unit", get_args(Unit)), ("audit", verdicts)):
            if row.get(name) not in allowed:
                return f"{name} {row.get(name)!r:.60} is not one of {', '.join(map(str, allowed))}"
        for name in ("parameters", "masked_free"):
            if row.get(name) is None:
                return f"a row without {name}"
        if row["masked_free"] > row["parameters"]:
            return f"{row['masked_free']} of {row['parameters']} parameters are free"
        for name, audited_as in AUDITED.items() if record.audit else ():
            if name in row and row[name] != record.audit.get(audited_as):
                return f"{name} {row[name]!r} in its row, {record.audit.get(audited_as)!r} in its audit"
    return None


def steps_fault(record: Record, row: Mapping[str, Any], most: int) -> str | None:
    """Return why the steps of a row or of the curves cannot be those of a training of at most `most` steps."""
    steps = record.curves.get("step", [])
    done = row.get("steps")
    if (done or 0) > most or (row.get("best_step") or 0) > (most if done is None else done):
        return f"{done} steps, the best of them {row.get('best_step')}, in a training of {most}"
    numbers = [step for step in steps if step is not None]
    if len(numbers) < len(steps) or numbers != sorted(set(numbers)) or not all(0 <= step <= most for step in numbers):
        return f"the steps of its curves do not ascend within a training of {most}"
    lengths = {name: len(values) for name, values in record.curves.items()}
    return None if len(set(lengths.values())) < 2 else f"curves of different lengths: {lengths}"


COLUMNS = {
    "Count": "Int64 >= 0",
    "Size": "Float64 >= 0",
    "Share": "Float64 in [0, 1]",
    "float": "Float64",
    "bool": "boolean",
    "str": "string",
}

MEASURES = {field.name: COLUMNS[str(field.type).partition(" |")[0]] for field in fields(DensityResult)}
"""Name -> type of the column of every measure."""

CANDIDATE_MEASURES = {
    name: MEASURES[name]
    for name in (
        *("parameters", "masked_free", "learning_rate", "options", "unit", "validation", "standard_error"),
        *("inverse_error", "logdet_error", "condition", "floor", "below_floor", "audit", "audit_reason"),
        *("audit_seconds", "steps", "passes", "best_step", "stopped_early", "train_seconds"),
    )
}
"""The same for a candidate of a tuning: those that need no test split."""
