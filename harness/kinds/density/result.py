"""The result of a density trial, one typed value; its row of results.csv and the columns of its kind follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, get_args

from harness.core.record_checks import AuditVerdict
from harness.core.records import Record, finite
from harness.core.settings import Unit


@dataclass(frozen=True, kw_only=True)
class DensityResult:
    """The measures of one trained flow; what was not measured is None.

    `unit` names the measure that is reported, "bits_per_dim" or "nats_per_dim"; `standard_error`, `median`, `worst`,
    `estimate_error`, `importance_weighted`, `validation`, `floor` and `claimed` are in it, and the three parts
    `*_nats_per_dim` sum to `nats_per_dim`. `test_events` is the number of events whose mean they are; `test_share` is
    that of the `harness.datasets.Splits`. `options` are those of the layer, as JSON. Under tuning, `candidate` is the
    number of the chosen one of `candidates`, and `chosen` are its settings, as JSON.
    """

    parameters: int
    masked_free: int
    learning_rate: float
    options: str
    candidate: int | None = None
    candidates: int | None = None
    chosen: str | None = None
    bits_per_dim: float | None = None
    nats_per_dim: float | None = None
    standard_error: float | None = None
    median: float | None = None
    worst: float | None = None
    test_events: int | None = None
    estimate_error: float | None = None
    draws: int | None = None
    importance_weighted: float | None = None
    prior_nats_per_dim: float | None = None
    log_det_nats_per_dim: float | None = None
    preprocessing_nats_per_dim: float | None = None
    validation: float | None = None
    inverse_error: float | None = None
    logdet_error: float | None = None
    condition: float | None = None
    floor: float | None = None
    below_floor: bool | None = None
    audit: str | None = None
    fid: float | None = None
    kid: float | None = None
    kid_sd: float | None = None
    precision: float | None = None
    recall: float | None = None
    samples: int | None = None
    extractor: str | None = None
    neighbour_distance: float | None = None
    neighbour_distance_test: float | None = None
    steps: int | None = None
    passes: int | None = None
    train_seconds: float | None = None
    unit: str
    audit_reason: str | None = None
    claimed: float | None = None
    best_step: int | None = None
    stopped_early: bool | None = None
    audit_seconds: float | None = None
    test_share: float | None = None

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
        if record.audit and record.audit["verdict"] != row.get("audit"):
            return f"audit {row.get('audit')!r} in its row, {record.audit['verdict']!r} in its audit"
    return None


PANDAS = {"int": "Int64", "float": "Float64", "bool": "boolean", "str": "string"}

MEASURES = {field.name: PANDAS[str(field.type).partition(" |")[0]] for field in fields(DensityResult)}
"""Name -> pandas type of every measure."""

CANDIDATE_MEASURES = {
    name: MEASURES[name]
    for name in (
        *("parameters", "masked_free", "learning_rate", "options", "unit", "validation", "standard_error"),
        *("inverse_error", "logdet_error", "condition", "floor", "below_floor", "audit", "audit_reason"),
        *("audit_seconds", "steps", "passes", "best_step", "stopped_early", "train_seconds"),
    )
}
"""The same for a candidate of a tuning: those that need no test split."""
