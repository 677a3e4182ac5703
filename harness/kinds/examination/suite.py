"""Suites that compute properties of layers as matrices, or check layers against what they report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from harness.core.settings import Settings
from harness.kinds.examination.examinations import Property
from harness.kinds.examination.trial import ConformanceTrial, ExaminationTrial
from harness.planning.cells import Scope
from harness.planning.suite import Suite
from harness.planning.suite_model import ShapedColumn


class ExaminationSuite(Suite, kind="examination"):
    """A suite that computes properties of every row's layer at every event shape.

    Attributes:
        examine: the properties (`harness.kinds.examination.examinations`).
    """

    column_model: ClassVar[type[Settings]] = ShapedColumn
    shapes = "events"

    examine: Annotated[tuple[Property, ...], Field(min_length=1)]

    def expand(self, scope: Scope, common: Mapping[str, Any], data: object) -> Iterator[ExaminationTrial]:
        """Yield a trial per column, row and property."""
        for cell in scope.every_cell:
            [shape] = cell.event_shapes
            about = {"label": cell.column, "shape": shape, "layer": cell.layer, "mixer": cell.settings.flow.mixer}
            for examine in self.examine:
                yield ExaminationTrial.model_validate({**common, **about, "examine": examine})


class ConformanceSuite(Suite, kind="conformance"):
    """A suite that checks every row's layer at every event shape."""

    column_model: ClassVar[type[Settings]] = ShapedColumn
    shapes = "unchecked"  # that a layer refuses one, or cannot be built, is a result of its trial

    def expand(self, scope: Scope, common: Mapping[str, Any], data: object) -> Iterator[ConformanceTrial]:
        """Yield a trial per column and row."""
        for cell in scope.every_cell:
            [shape] = cell.event_shapes
            yield ConformanceTrial(**common, label=cell.column, shape=shape, layer=cell.layer)
