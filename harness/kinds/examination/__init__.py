"""Examinations: compute properties of a layer as a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.kinds import IDENTITY, Dependencies, Kind
from harness.kinds.examination.suite import ExaminationSuite
from harness.kinds.examination.trial import ExaminationTrial

if TYPE_CHECKING:
    from harness.core.records import Record
    from harness.core.run_options import RunOptions
    from harness.core.settings import Progress
    from harness.reporting.frame import Results
    from harness.reporting.tables.rendering import Table
    from harness.training.checkpoints import Checkpoints


class ExaminationKind(Kind, name="examination"):
    """Compute one property of a layer, without data or training."""

    suite = ExaminationSuite
    trial = ExaminationTrial
    columns = IDENTITY | {
        "examine": "string",
        "mixer": "string",
        "seed": "Int64",
        "status": "string",
        "reason": "string",
        "check": "string",
        "density": "Float64",
        "classes": "Int64",
        "sizes": "string",
        "log10_permutations": "Float64",
        "factors": "Int64",
        "realised": "Int64",
        "draws": "Int64",
        "log10_one_pass": "Float64",
        "block_size": "Int64",
        "layer_error": "Float64",
        "blocks_error": "Float64",
        "device": "string",
        "id": "string",
    }

    def run(
        self, trial: ExaminationTrial, run_options: RunOptions, progress: Progress, checkpoints: Checkpoints
    ) -> Record:
        """See `harness.kinds.examination.run.run_examination`."""
        from harness.kinds.examination.run import run_examination

        return run_examination(trial, run_options.root, run_options.out, progress)

    def depends_on(self, trial: ExaminationTrial) -> Dependencies:
        """Return the run alone: layers are examined without a flow."""
        return Dependencies(("harness.kinds.examination.run",), mixer=trial.mixer != "none")

    def tables(self, results: Results) -> list[Table]:
        """See `harness.kinds.examination.tables.examination_tables`."""
        from harness.kinds.examination.tables import examination_tables

        return examination_tables(results)
