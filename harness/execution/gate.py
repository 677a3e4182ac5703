"""Before a run: check every third-party layer with check-layer; trials of a refused layer do not start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.checking.isolated import check_in_process
from harness.core.errors import UserError
from harness.core.isolation.messages import shortened, visible
from harness.core.records import blank_record, write_record
from harness.core.run_options import PASSED, UNCHECKED, RunOptions, shown_seconds
from harness.core.settings import LayerRef
from harness.core.trial import Trial
from harness.execution.check_column import refusal
from harness.execution.local.supervisor import Provenance

REFUSED = "check-layer refused it:"
LONGEST_FAULT = 180  # characters, so that tables, which shorten reasons, still show the remedy
WAY_OUT = "fix the layer, or run it anyway: --unchecked with --retry-failed"


def check_layers(trials: Iterable[Trial], unchecked: bool) -> dict[str, str]:
    """Check each third-party layer of these trials once per set of options, and print the outcome.

    Args:
        trials: the trials to run.
        unchecked: whether to skip the checks (--unchecked).

    Returns:
        See `harness.core.run_options.RunOptions.checks`.
    """
    layers = {layer.check_key: layer for trial in trials for layer in trial.layers_under_test}
    return {key: UNCHECKED if unchecked else _check(layer) for key, layer in layers.items() if key is not None}


def _check(layer: LayerRef) -> str:
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
    print(f"check-layer {layer.layer}: refused, so its trials do not run: {fault}", flush=True)
    return f"{REFUSED} {shortened(fault, LONGEST_FAULT)}; {WAY_OUT}"


def leave_out_refused(trials: Sequence[Trial], run_options: RunOptions, provenance: Provenance) -> list[Trial]:
    """Write a record for each trial whose layers were all refused; return the others.

    A runtime trial with another layer runs without the refused ones, and has their reasons in their rows.
    """
    left = []
    for trial in trials:
        reasons = [refusal(layer, run_options.checks) for layer in trial.layers_under_test]
        if not reasons or None in reasons:
            left.append(trial)
            continue
        record = blank_record(trial, "error", "; ".join(dict.fromkeys(filter(None, reasons))))
        record.environment = dict(provenance(trial))
        write_record(run_options.out / "records", record)
    return left
