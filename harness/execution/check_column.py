"""The column `check` of results: the outcome of check-layer for a third-party layer before the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harness.core.records import Record
from harness.core.run_options import PASSED, UNCHECKED
from harness.core.settings import LayerRef
from harness.core.trial import Trial


def refusal(layer: LayerRef, checks: Mapping[str, str]) -> str | None:
    """Return the reason for which check-layer refused a layer; None if it did not.

    Args:
        layer: any row of a suite.
        checks: outcomes in this run (see `harness.core.run_options.RunOptions`).
    """
    said = checks.get(layer.check_key or "")
    return None if said in (None, PASSED, UNCHECKED) else said


def without_refused(trial: Trial, checks: Mapping[str, str]) -> Trial:
    """Return the trial without the layers that check-layer refused, if it measures several."""
    return trial.without_rows([layer.row for layer in trial.layers_under_test if refusal(layer, checks) is not None])


def with_checks(record: Record, trial: Trial, checks: Mapping[str, str]) -> Record:
    """Convert the record of `without_refused(trial, checks)` to one of the trial, with the column in its rows."""
    layers = {layer.row: layer for layer in trial.layers_under_test}
    if not checks:
        return record
    for row in record.rows:
        key = layers[row["layer"] if len(layers) > 1 else next(iter(layers))].check_key
        if key is not None and key in checks:
            row["check"] = checks[key]
    refused = {name: why for name, layer in layers.items() if (why := refusal(layer, checks)) is not None}
    if not refused or len(layers) == 1:
        return record
    cases = [case for case in trial.cases if case["layer"] in refused]
    rows = [case | {"status": "error", "reason": refused[case["layer"]]} for case in cases]
    reasons = [*refused.values(), *([record.reason] if record.reason else [])]
    return replace(
        record,
        id=trial.id,
        trial=trial.model_dump(mode="json"),
        status="error",
        reason="; ".join(dict.fromkeys(reasons)),
        rows=[*record.rows, *rows],
    )
