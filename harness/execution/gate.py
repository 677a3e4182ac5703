"""Before a run: check every third-party layer with check-layer; trials of a refused layer end at once.

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
from harness.core.records import Record, blank_record
from harness.core.run_options import NOT_FULLY_CHECKED, PASSED, UNCHECKED, shown_seconds
from harness.core.settings import LayerRef
from harness.core.texts import shortened, visible
from harness.core.trial import Trial

REFUSED = "check-layer refused it:"
LONGEST_FAULT = 180  # characters, so that tables, which shorten reasons, still show the remedy
HINT = "fix the layer, or run it anyway: --unchecked with --retry-failed"


def check_layers(trials: Iterable[Trial], unchecked: bool, tell: Callable[[str], None] = print) -> dict[str, str]:
    """Check each third-party layer of some trials once for each set of options; return `RunOptions.checks`."""
    layers: dict[str, LayerRef] = {}
    extents: defaultdict[str, tuple[set[tuple[int, ...]], set[int]]] = defaultdict(lambda: (set(), set()))
    for trial in trials:
        for layer in trial.layers_to_check:
            if (key := layer.check_key) is not None:
                layers[key] = layer
                extents[key][0].update(trial.layer_shapes)
                extents[key][1].update(trial.layer_batches)
    if unchecked:
        return dict.fromkeys(layers, UNCHECKED)
    return {key: _check(layer, sorted(extents[key][0]), sorted(extents[key][1]), tell) for key, layer in layers.items()}


def _check(
    layer: LayerRef, shapes: Sequence[tuple[int, ...]], batches: Sequence[int], tell: Callable[[str], None]
) -> str:
    from harness.checking.check_layer import SHAPES  # here: trials import this module, and check nothing
    from harness.checking.isolated import check_in_process

    tell(f"check-layer {layer.layer}: on small events, and in shapes and batches of the suite")
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
            text = f"not fully checked, so tables mark it; its trials run. Not answered: {rules}"
            print(f"check-layer {layer.layer}: {text}", file=sys.stderr, flush=True)
            return f"{NOT_FULLY_CHECKED} {rules}"
        fault = report.reason()
    # Records and reports contain no folders of this machine.
    fault = fault.replace(f"{Path(layer.layer.rpartition(':')[0]).resolve().parent}/", "")
    print(f"check-layer {layer.layer}: refused, so its trials do not run: {fault}", file=sys.stderr, flush=True)
    return f"{REFUSED} {shortened(fault, LONGEST_FAULT)}; {HINT}"


def refused(trial: Trial, checks: Mapping[str, str]) -> Record | None:
    """Return the record of a trial whose layers were all refused; None of any other."""
    reasons = refusals(trial, checks)
    if not reasons or len(reasons) < len(trial.layers_to_check):
        return None
    return blank_record(trial, "error", "; ".join(dict.fromkeys(reasons.values())))


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
