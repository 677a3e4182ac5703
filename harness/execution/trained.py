"""Load the trained model of a finished trial from the folder of its run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from harness.core.discovery import sibling
from harness.core.errors import UserError, nearest
from harness.core.global_settings import default_device_cpu
from harness.core.layer_classes import kept_default_dtype
from harness.core.provenance.sources import Sources, changes
from harness.core.records import AUDIT_FAILED, read_record, verdict
from harness.core.third_party import is_third_party, looking_in
from harness.core.trial import TRIALS
from harness.execution.outcome import record_path
from harness.planning.plan import Plan

MODEL = ("layers/", "flows ", "flows/", "harness/pipeline ")
"""Beginnings of changes of source that determines the map of a model."""

OTHERS = ("harness/", "csrc ", "csrc/")
"""Those of other source of the project, which determines how it was trained, and how fast."""


@default_device_cpu()
@kept_default_dtype(torch.float32)
def load_trained_model(folder: Path, name: str, device: str, third_party: bool) -> Any:
    """See `harness.load_flow`.

    Third-party files whose names are relative are looked for in the folders above that of the run, then in the working
    directory.
    """
    with looking_in(folder.resolve().parents):
        return _load(folder, name, device, third_party)


def _load(folder: Path, name: str, device: str, third_party: bool) -> Any:
    plan = Plan.load(folder)
    trials = {trial.id: trial for trial in plan.trials}
    if name not in trials:
        raise UserError(f"{folder}: no trial has the id {name!r}; {nearest(name, trials)} (column id of results.csv)")
    trial = trials[name]
    module = sibling(type(trial), "trained")
    if module is None or not trial.stage:  # a candidate of a tuning keeps none
        keeping = " or ".join(kind for kind, cls in sorted(TRIALS.items()) if cls.stage and sibling(cls, "trained"))
        raise UserError(f"{name}: a trial of kind {trial.kind} keeps no weights; name one of kind {keeping}")
    path = record_path(folder, trial)
    if not path.exists() or (record := read_record(path)).status != "ok":
        raise UserError(f"{name}: the trial has left no weights; `python -m harness status {folder}` says why")
    named = [layer.layer for layer in trial.layers_under_test] + [data.name for data in trial.data_sets]
    specs = dict.fromkeys(filter(is_third_party, named))
    if specs and not third_party:
        raise UserError(
            f"{name}: its flow needs {' and '.join(specs)}, third-party code that is run when it is imported; if you "
            "trust that code, give third_party=True"
        )
    before = record.environment.get("sources") or {}
    differences = changes(before, Sources().of(trial)) if before else []
    changed = [change for change in differences if change.startswith(MODEL) or not change.startswith(OTHERS)]
    if changed:
        raise UserError(
            f"{name}: its flow is not the one that was trained, as {', '.join(changed)}; restore that source, or run "
            "the suite again with --stale rerun"
        )
    if verdict(record) == AUDIT_FAILED:
        reason = "; ".join(str(row["audit_reason"]) for row in record.rows)
        warnings.warn(f"{name} failed its audit, so its log-densities may not be likelihoods: {reason}", stacklevel=5)
    return module.load(trial, folder, device)
