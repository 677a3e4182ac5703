"""Before a run: check every third-party layer with check-layer; trials of a refused layer do not start.

A layer is checked on small events and on those of its trials. If time runs out before a rule fails, its trials run, and
tables say "not fully checked": the clock of a busy machine is no fault of a layer.

The column `check` of results has the outcome for each of these layers. Outcomes are passed on as
`harness.core.run_options.RunOptions.checks`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.core.errors import UserError
from harness.core.records import Record, blank_record, write_record
from harness.core.run_options import NOT_FULLY_CHECKED, PASSED, UNCHECKED, RunOptions, shown_seconds
from harness.core.settings import LayerRef
from harness.core.texts import shortened, visible
from harness.core.trial import Trial
from harness.execution.provenance import Provenance

REFUSED = "check-layer refused it:"
LONGEST_FAULT = 180  # characters, so that tables, which shorten reasons, still show the remedy
HINT = "fix the layer, or run it anyway: --unchecked with --retry-failed"


def check_layers(trials: Iterable[Trial], unchecked: bool, tell: Callable[[str], None] = print) -> dict[str, str]:
    """Check each third-party layer of some trials once for each set of options; return `RunOptions.checks`."""
    layers: dict[str, LayerRef] = {}
    shapes: defaultdict[str, set[tuple[int, ...]]] = defaultdict(set)  # of events, by `LayerRef.check_key`
    batches: defaultdict[str, set[int]] = defaultdict(set)  # their sizes
    for trial in trials:
        for layer in trial.layers_to_check:
            if (key := layer.check_key) is not None:
                layers[key] = layer
                shapes[key].update(trial.layer_shapes)
                batches[key].update(trial.layer_batches)
    if unchecked:
        return dict.fromkeys(layers, UNCHECKED)
    return {key: _check(layer, sorted(shapes[key]), sorted(batches[key]), tell) for key, layer in layers.items()}


def _check(
    layer: LayerRef, shapes: Sequence[tuple[int, ...]], batches: Sequence[int], tell: Callable[[str], None]
) -> str:
    from harness.checking.check_layer import SHAPES  # here: trials import this module, and check nothing
    from harness.checking.isolated import check_in_process

    about = f", and those of the suite: {', '.join(map(str, shapes))}" if shapes else ""
    sizes = f", in batches of {' and '.join(map(str, batches))}" if batches else ""
    tell(f"check-layer {layer.layer}: on small events{about}{sizes}")
    try:
        report = check_in_process(
            layer.layer,
            dict(layer.options),
            shapes=tuple(dict.fromkeys([*SHAPES, *shapes])),
            large=False,
            batches=tuple(batches),
        )
    except UserError as error:
        fault = visible(str(error))
    else:
        if report.ok:
            tell(f"check-layer {layer.layer}: passed, in {shown_seconds(report.seconds)}")
            return PASSED
        if report.outcome == "undecided":
            rules = visible(", ".join(report.unanswered))
            text = (
                f"check-layer {layer.layer}: not fully checked after {shown_seconds(report.seconds)}, so tables mark it"
            )
            print(f"{text}; its trials run. Not answered: {rules}", file=sys.stderr, flush=True)
            return f"{NOT_FULLY_CHECKED} {rules}"
        fault = report.reason()
    # Records and reports contain no folders of this machine.
    fault = fault.replace(f"{Path(layer.layer.rpartition(':')[0]).resolve().parent}/", "")
    print(f"check-layer {layer.layer}: refused, so its trials do not run: {fault}", file=sys.stderr, flush=True)
    return f"{REFUSED} {shortened(fault, LONGEST_FAULT)}; {HINT}"


def leave_out_refused(trials: Sequence[Trial], run_options: RunOptions, provenance: Provenance) -> list[Trial]:
    """Write a record for each trial whose layers were all refused; return the others."""
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
    allowed = (PASSED, UNCHECKED, NOT_FULLY_CHECKED)
    return {row: outcome for row, outcome in outcomes.items() if not outcome.startswith(allowed)}


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
