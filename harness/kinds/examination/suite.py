"""Suites that compute properties of layers as matrices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from harness.kinds.examination.examinations import Property
from harness.kinds.examination.trial import ExaminationTrial
from harness.planning.resolve import Cell, Scope
from harness.planning.suite_base import Suite
from harness.planning.suite_model import ProfileName, ShapedProfile


class ExaminationSuite(Suite, kind="examination"):
    """A suite that computes properties of every row's layer at every event shape.

    Attributes:
        examine: the properties (`harness.kinds.examination.examinations`).
    """

    examine: Annotated[tuple[Property, ...], Field(min_length=1)]
    profiles: Annotated[Mapping[ProfileName, ShapedProfile], Field(min_length=1)]

    def expand(self, scope: Scope, common: Mapping[str, Any], data: object) -> Iterator[ExaminationTrial]:
        """Yield a trial per column, row and property."""
        for cell in scope.every_cell:
            [shape] = self.event_shapes(scope, cell)
            about = {"label": cell.column, "shape": shape, "layer": cell.layer, "mixer": cell.flow.mixer}
            for examine in self.examine:
                yield ExaminationTrial.model_validate({**common, **about, "examine": examine})

    def layer_shapes(self, scope: Scope, cell: Cell) -> list[tuple[int, ...]]:
        """Return the event shape: the layer is examined without a flow."""
        return self.event_shapes(scope, cell)
