"""The settings of a conformance trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from harness.core.settings import Count, LayerRef
from harness.core.trial import IDENTITY, ORIGIN, OUTCOME, Trial

MEASURES = {
    "conforms": "boolean",
    "log_det": "Float64",
    "log_det_true": "Float64",
    "log_det_error": "Float64 >= 0",
    "inverse_error": "Float64 >= 0",
    "reverse_log_det_error": "Float64 >= 0",
    "condition": "Float64 >= 0",
    "rules": "Int64 >= 0",
    "failed_rules": "string",
    "finding": "string",
    "remark": "string",
}


class ConformanceTrial(Trial):
    """Check one layer on one event shape, without data.

    No check-layer precedes it: a faulty layer is a result.
    """

    columns: ClassVar[Mapping[str, str]] = IDENTITY | {"weights": "string"} | OUTCOME | MEASURES | ORIGIN
    deterministic: ClassVar[bool] = True

    kind: Literal["conformance"] = "conformance"
    label: str
    shape: tuple[Count, ...]
    layer: LayerRef

    @property
    def layers_to_check(self) -> tuple[LayerRef, ...]:
        """None."""
        return ()

    @property
    def cases(self) -> list[dict[str, Any]]:
        """Weights away from initialisation by noise, and after some steps of training."""
        return [{"weights": "random"}, {"weights": "trained"}]

    @property
    def required(self) -> tuple[str, ...]:
        """The outcome."""
        return ("conforms",)
