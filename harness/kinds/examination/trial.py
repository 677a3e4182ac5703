"""The settings of an examination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from harness.core.settings import Count, Examination, LayerRef
from harness.core.trial import IDENTITY, ORIGIN, OUTCOME, Dependencies, Trial

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


class ExaminationTrial(Trial):
    """Compute a quantity of one layer as a matrix, without data and without training."""

    columns: ClassVar[Mapping[str, str]] = (
        IDENTITY | {"examine": "string", "mixer": "string"} | OUTCOME | MEASURES | ORIGIN
    )

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

    def dependencies(self) -> Dependencies:
        """Return the run alone: layers are examined without a flow."""
        run = ("harness.kinds.examination.run",)
        return Dependencies(run, mixer=self.mixer != "none", unused=("flows.perceptron",))
