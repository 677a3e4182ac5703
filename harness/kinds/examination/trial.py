"""The settings of trials of one layer as a matrix, without data: an examination, or a check by every rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from harness.core.settings import Count, LayerRef
from harness.core.trial import IDENTITY, ORIGIN, OUTCOME, Trial
from harness.kinds.examination.examinations import EXAMINATIONS, Property

MEASURES = {
    name: column_type
    for examination in EXAMINATIONS.values()
    for name, (column_type, _, _) in examination.measures.items()
}

CONFORMANCE = {
    "conforms": "boolean",
    "log_det": "Float64",
    "log_det_true": "Float64",
    **dict.fromkeys(("log_det_error", "inverse_error", "reverse_log_det_error", "condition"), "Float64 >= 0"),
    "rules": "Int64 >= 0",
    **dict.fromkeys(("failed_rules", "finding", "remark"), "string"),
}


class ExaminationTrial(Trial):
    """Compute a quantity of one layer as a matrix, without data and without training."""

    columns: ClassVar[Mapping[str, str]] = (
        IDENTITY | {"examine": "string", "mixer": "string"} | OUTCOME | MEASURES | ORIGIN
    )

    run_module: ClassVar[str] = "examinations"

    kind: Literal["examination"] = "examination"
    label: str
    shape: tuple[Count, ...]
    layer: LayerRef
    mixer: Literal["plu", "qr", "dense", "none"] = "none"  # the 1x1 convolution before the layer
    examine: Property

    @property
    def slug(self) -> str:
        """The readable part of the id: quantity, row and shape."""
        return f"{self.examine}-{self.label}-{self.layer.row}"

    @property
    def layer_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape that is examined."""
        return (self.shape,)

    @property
    def place(self) -> str:
        """Quantity and shape."""
        return f"{self.examine}, {self.label}"

    @property
    def fields(self) -> dict[str, Any]:
        """Data set, layer, quantity and mixer."""
        return super().fields | {"examine": self.examine, "mixer": self.mixer}

    @property
    def required(self) -> tuple[str, ...]:
        """The measures of the quantity."""
        return tuple(EXAMINATIONS[self.examine].measures)


class ConformanceTrial(Trial):
    """Check one layer on one event shape by every rule; no check-layer precedes it, as a faulty layer is a result."""

    columns: ClassVar[Mapping[str, str]] = IDENTITY | {"weights": "string"} | OUTCOME | CONFORMANCE | ORIGIN
    deterministic: ClassVar[bool] = True
    run_module: ClassVar[str] = "conformance"

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
