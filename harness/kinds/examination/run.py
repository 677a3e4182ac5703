"""An examination trial: one property of one layer as a matrix. No data, no training."""

from __future__ import annotations

from pathlib import Path

from harness.core.records import Record, blank_record
from harness.core.settings import Progress
from harness.kinds.examination.examinations import EXAMINATIONS
from harness.kinds.examination.trial import ExaminationTrial
from layers import UnsupportedShape


def run(
    trial: ExaminationTrial, root: Path | None, out: Path, progress: Progress, checkpoints: object = None
) -> Record:
    """Examine one layer; a shape that it cannot serve is an outcome."""
    record = blank_record(trial, "ok", None)
    try:
        measures = EXAMINATIONS[trial.examine].compute(trial.layer, trial.shape, trial.mixer)
    except UnsupportedShape as error:
        return blank_record(trial, "unsupported", str(error))
    record.rows = [{"layer": trial.layer.row, "dataset": trial.label} | measures]
    progress(1.0, ", ".join(f"{name} {value}" for name, value in measures.items()))
    return record
