"""Conformance: whether a layer, of any library, is what its log-det and its inverse say, before and after training."""

from __future__ import annotations

from harness.core.kinds import IDENTITY, ORIGIN, OUTCOME, Dependencies, Kind
from harness.kinds.conformance.suite import ConformanceSuite
from harness.kinds.conformance.trial import ConformanceTrial

MEASURES = {
    "conforms": "boolean",
    "log_det": "Float64",
    "log_det_true": "Float64",
    "log_det_error": "Float64",
    "inverse_error": "Float64",
    "reverse_log_det_error": "Float64",
    "condition": "Float64",
    "rules": "Int64",
    "failed_rules": "string",
    "finding": "string",
    "remark": "string",
}


class ConformanceKind(Kind, name="conformance"):
    """Check one layer by every rule, and its log-det and inverse at random and at trained weights."""

    suite = ConformanceSuite
    trial = ConformanceTrial
    deterministic = True
    columns = IDENTITY | {"weights": "string"} | OUTCOME | MEASURES | ORIGIN

    def depends_on(self, trial: ConformanceTrial) -> Dependencies:
        """Return the run alone: layers are checked without a flow."""
        return Dependencies(("harness.kinds.conformance.run",))
