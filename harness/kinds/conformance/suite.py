"""Suites that check layers, of this project and of others, against what they report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from harness.core.settings import Settings
from harness.kinds.conformance.trial import ConformanceTrial
from harness.planning.cells import Scope
from harness.planning.suite_base import Suite
from harness.planning.suite_model import ShapedColumn


class ConformanceSuite(Suite, kind="conformance"):
    """A suite that checks every row's layer at every event shape."""

    column_model: ClassVar[type[Settings]] = ShapedColumn
    shapes = "unchecked"  # that a layer refuses one, or cannot be built, is a result of its trial

    def expand(self, scope: Scope, common: Mapping[str, Any], data: object) -> Iterator[ConformanceTrial]:
        """Yield a trial per column and row."""
        for cell in scope.every_cell:
            [shape] = cell.event_shapes
            about = {"label": cell.column, "shape": shape, "layer": cell.layer}
            yield ConformanceTrial.model_validate({**common, **about})
