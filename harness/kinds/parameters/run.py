"""A parameters trial: build one model and count it."""

from __future__ import annotations

from pathlib import Path

from harness.core.records import Record, blank_record
from harness.core.settings import Progress
from harness.kinds.parameters.trial import ParametersTrial
from harness.pipeline.models import build_flow
from layers import count_entries, free_parameters


def run(trial: ParametersTrial, root: Path | None, out: Path, progress: Progress, checkpoints: object = None) -> Record:
    """Count the parameters of the built model, with and without entries that a mask hides."""
    flow = build_flow(trial.shape, trial.layer, trial.flow, seed=0)
    record = blank_record(trial, "ok", None)
    record.rows = [
        {
            "layer": trial.layer.row,
            "dataset": trial.label,
            "width": trial.flow.width,
            "parameters": count_entries(flow.parameters()),
            "masked_free": free_parameters(flow),
        }
    ]
    progress(1.0, f"{record.rows[0]['parameters']:,} parameters")
    return record
