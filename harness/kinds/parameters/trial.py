"""The settings of a parameters trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from harness.core.settings import Count, FlowSettings, LayerRef
from harness.core.trial import IDENTITY, ORIGIN, OUTCOME, Trial

MEASURES = dict.fromkeys(("parameters", "published", "masked_free"), "Int64 >= 0")


class ParametersTrial(Trial):
    """Build one model and count its parameters."""

    columns: ClassVar[Mapping[str, str]] = IDENTITY | {"width": "Int64"} | OUTCOME | MEASURES | ORIGIN
    computes: ClassVar[bool] = False

    kind: Literal["parameters"] = "parameters"
    label: str  # the data set with this event shape
    shape: tuple[Count, ...]
    layer: LayerRef
    flow: FlowSettings

    @property
    def slug(self) -> str:
        """The readable part of the id: data set, row and width."""
        return f"{self.label}-{self.layer.row}-w{self.flow.width}"

    @property
    def layer_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the events of its layers."""
        from harness.pipeline.models import layer_shapes  # imports torch

        return tuple(layer_shapes(self.shape, self.flow))

    @property
    def place(self) -> str:
        """Data set and coupling width."""
        return f"{self.label}, width {self.flow.width}"

    @property
    def position(self) -> tuple[int, ...]:
        """The coupling width."""
        return (self.flow.width,)

    @property
    def fields(self) -> dict[str, Any]:
        """Data set, layer and coupling width."""
        return super().fields | {"width": self.flow.width}

    @property
    def required(self) -> tuple[str, ...]:
        """The counts."""
        return "parameters", "masked_free"

    @classmethod
    def headline(cls, rows: Sequence[Mapping[str, Any]]) -> str:
        """Return the number of parameters."""
        return f"{rows[0]['parameters']:,} parameters"
