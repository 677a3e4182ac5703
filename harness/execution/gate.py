"""Before a run: check every third-party layer with check-layer; trials of a refused layer do not start.

The column `check` of results has the outcome for each of these layers. Outcomes are passed on as
`harness.core.run_options.RunOptions.checks`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import UserError
from harness.core.isolation.messages import shortened, visible
from harness.core.records import Record, blank_record, write_record
from harness.core.run_options import PASSED, UNCHECKED, RunOptions, shown_seconds
from harness.core.settings import LayerRef
from harness.core.trial import Trial

if TYPE_CHECKING:
    from harness.execution.local.supervisor import Provenance

REFUSED = "check-layer refused it:"
LONGEST_FAULT = 180  # characters, so that tables, which shorten reasons, still show the remedy
WAY_OUT = "fix the layer, or run it anyway: --unchecked with --retry-failed"


def check_layers(trials: Iterable[Trial], unchecked: bool, known: Mapping[str, str]) -> dict[str, str]:
    """Return `RunOptions.checks` with those known: check each third-party layer once per set of options; print it."""
    layers = {layer.check_key: layer for trial in trials for layer in trial.layers_to_check}
    new = {key: layer for key, layer in layers.items() if key is not None and key not in known}
    return dict(known) | {key: UNCHECKED if unchecked else _check(layer) for key, layer in new.items()}


def _check(layer: LayerRef) -> str:
    from harness.checking.isolated import check_in_process  # here: trials import this module, and check nothing

    try:
        report = check_in_process(layer.layer, dict(layer.options))
    except UserError as error:
        fault = visible(str(error))
    else:
        if report.ok:
            print(f"check-layer {layer.layer}: passed, in {shown_seconds(report.seconds)}", flush=True)
            return PASSED
        fault = report.reason()
    # Records and reports contain no folders of this machine.
    fault = fault.replace(f"{Path(layer.layer.rpartition(':')[0]).resolve().parent}/", "")
    print(f"check-layer {layer.layer}: refused, so its trials do not run: {fault}", file=sys.stderr, flush=True)
    return f"{REFUSED} {shortened(fault, LONGEST_FAULT)}; {WAY_OUT}"


def leave_out_refused(trials: Sequence[Trial], run_options: RunOptions, provenance: Provenance) -> list[Trial]:
    """Write a record for each trial whose layers were all refused; return the others.

    A runtime trial with another layer runs without the refused ones, and has their reasons in their rows.
    """
    left = []
    for trial in trials:
        layers, reasons = trial.layers_to_check, refusals(trial, run_options.checks)
        if len(reasons) < len(layers) or not layers:
            left.append(trial)
            continue
        record = blank_record(trial, "error", "; ".join(dict.fromkeys(reasons.values())))
        record.environment = dict(provenance(trial))
        write_record(run_options.out / "records", record)
    return left


def refusals(trial: Trial, checks: Mapping[str, str]) -> dict[str, str]:
    """Return row -> reason, for the layers of a trial that check-layer refused."""
    outcomes = {layer.row: checks.get(layer.check_key or "", PASSED) for layer in trial.layers_to_check}
    return {row: outcome for row, outcome in outcomes.items() if outcome not in (PASSED, UNCHECKED)}


def without_refused(trial: Trial, checks: Mapping[str, str]) -> Trial:
    """Return the trial without the layers that check-layer refused, if it measures several."""
    refused = refusals(trial, checks)
    return trial.without_rows(refused) if refused else trial


def with_checks(record: Record, trial: Trial, checks: Mapping[str, str]) -> Record:
    """Convert the record of `without_refused(trial, checks)` to one of the trial, with the column in its rows."""
    keys = {layer.row: layer.check_key for layer in trial.layers_to_check}
    for row in record.rows if keys else ():
        key = keys[row["layer"] if len(keys) > 1 else next(iter(keys))]
        if key is not None and key in checks:
            row["check"] = checks[key]
    refused = refusals(trial, checks)
    if not refused or len(keys) == 1:
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
