"""Suites that check layers, of this project and of others, against what they report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from harness.kinds.conformance.trial import ConformanceTrial
from harness.planning.resolve import Cell, Scope
from harness.planning.suite_base import Suite
from harness.planning.suite_model import ProfileName, ShapedProfile


class ConformanceSuite(Suite, kind="conformance"):
    """A suite that checks every row's layer at every event shape."""

    profiles: Annotated[Mapping[ProfileName, ShapedProfile], Field(min_length=1)]

    def expand(self, scope: Scope, common: Mapping[str, Any], data: object) -> Iterator[ConformanceTrial]:
        """Yield a trial per column and row."""
        for cell in scope.every_cell:
            [shape] = self.event_shapes(scope, cell)
            about = {"label": cell.column, "shape": shape, "layer": cell.layer}
            yield ConformanceTrial.model_validate({**common, **about})

    def layer_shapes(self, scope: Scope, cell: Cell) -> list[tuple[int, ...]]:
        """Return no shape: that a layer refuses one, or cannot be built, is a result of its trial."""
        return []
