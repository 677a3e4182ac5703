"""Suites that count parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from harness.core.explain import Problem
from harness.core.settings import Settings
from harness.core.trial import Trial
from harness.kinds.parameters.trial import ParametersTrial
from harness.planning.cells import Scope
from harness.planning.suite import Suite
from harness.planning.suite_model import ProfileKeys, Published, ShapedColumn, Widths


class CountedColumn(ShapedColumn):
    """A column, with coupling widths in place of the profile's.

    Attributes:
        widths: coupling widths; null: the profile's.
    """

    widths: Widths | None = None


class CountedProfile(ProfileKeys):
    """One size of the suite, with the coupling widths at which models are counted.

    Attributes:
        widths: coupling widths, of every column without `widths`.
    """

    widths: Widths | None = None


class ParametersSuite(Suite, kind="parameters"):
    """A suite that counts the parameters of every row at every event shape and coupling width."""

    column_model: ClassVar[type[Settings]] = CountedColumn
    profile_model: ClassVar[type[ProfileKeys]] = CountedProfile

    def expand(self, scope: Scope, common: Mapping[str, Any], data: object) -> Iterator[ParametersTrial]:
        """Yield a trial per column, width and row."""
        for column, cells in scope.cells.items():
            for width in scope.of_column(column, "widths") or ():
                for cell in cells:
                    [shape] = cell.event_shapes
                    flow = cell.settings.flow.model_copy(update={"width": width})
                    yield ParametersTrial(**common, label=column, shape=shape, layer=cell.layer, flow=flow)

    def problems(self, scope: Scope) -> Iterator[Problem]:
        """Yield columns without widths, and widths of the flow, which have no effect."""
        if not all(scope.of_column(column, "widths") for column in scope.columns):
            message = f"profiles.{scope.name} has no widths; say at which coupling widths to count: widths: [64]"
            yield scope.where.says(message, at_key=True)
        for cell in scope.every_cell:
            if (where := cell.place("flow", "width")) is not None:
                message = "flow.width: has no effect in a suite of kind parameters; give the profile widths: [...]"
                yield where.says(message, at_key=True)

    @classmethod
    def quoted(cls, trial: Trial, published: Published | None) -> dict[str, Any]:
        """Return the published count beside the trial of its layer that has the width it was published for."""
        if not isinstance(trial, ParametersTrial) or published is None or published.measure != "parameters":
            return {"published": None}
        row = trial.layer.row
        if published.width(row, trial.label) not in (None, trial.flow.width):
            return {"published": None}
        return {"published": published.values.get(row, {}).get(trial.label)}
