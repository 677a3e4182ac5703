"""Examinations: compute properties of a layer as a matrix."""

from __future__ import annotations

from harness.core.kinds import IDENTITY, ORIGIN, OUTCOME, Dependencies, Kind
from harness.kinds.examination.suite import ExaminationSuite
from harness.kinds.examination.trial import ExaminationTrial

MEASURES = {
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
}


class ExaminationKind(Kind, name="examination"):
    """Compute one property of a layer, without data or training."""

    suite = ExaminationSuite
    trial = ExaminationTrial
    columns = IDENTITY | {"examine": "string", "mixer": "string"} | OUTCOME | MEASURES | ORIGIN

    def depends_on(self, trial: ExaminationTrial) -> Dependencies:
        """Return the run alone: layers are examined without a flow."""
        return Dependencies(("harness.kinds.examination.run",), mixer=trial.mixer != "none")
