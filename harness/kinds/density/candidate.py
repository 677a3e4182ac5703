"""A candidate of a tuning: train one flow, evaluate it on the validation split and audit it in part; no test split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.records import Record, blank_record
from harness.core.settings import Progress
from harness.kinds.density.result import CANDIDATE_MEASURES
from harness.kinds.density.run import Ended, train
from harness.kinds.density.trial import CandidateTrial

if TYPE_CHECKING:
    from harness.training.checkpoints import Checkpoints


def run(
    trial: CandidateTrial,
    root: Path | None,
    out: Path,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> Record:
    """Run a candidate; a shape that cannot be served and a divergence are outcomes, not errors.

    Returns:
        A record of one row: `validation`, the lowest value of the validation split, and `standard_error` over its
        examples, in the data's unit; the audit of a candidate; the size and the costs as in a density trial. No weights
        are kept. A short candidate has no audit and no `standard_error`.
    """
    record = blank_record(trial, "ok", None)
    try:
        trained = train(trial, record, "validation", root, None, progress, checkpoints)
    except Ended as end:
        record.status, record.reason = end.status, end.reason
    else:
        record.rows, record.notes = [trained.result.row()], trained.result.notes() | record.notes
        progress(1.0, f"validation {trained.result.validation:.3f}, audit {trained.findings.verdict}")
    record.rows = [{name: value for name, value in row.items() if name in CANDIDATE_MEASURES} for row in record.rows]
    return record
