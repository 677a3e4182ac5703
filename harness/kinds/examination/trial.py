"""The settings of an examination."""

from __future__ import annotations

from typing import Any, Literal

from harness.core.settings import Count, Examination, LayerRef
from harness.core.trial import Trial


class ExaminationTrial(Trial):
    """Compute a quantity of one layer as a matrix, without data and without training."""

    kind: Literal["examination"] = "examination"
    label: str
    shape: tuple[Count, ...]
    layer: LayerRef
    mixer: Literal["plu", "qr", "dense", "none"] = "none"  # the 1x1 convolution before the layer
    examine: Examination

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
