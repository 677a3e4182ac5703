"""Suites that time layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from harness.core.settings import Count, Settings
from harness.kinds.runtime.trial import RuntimeTrial
from harness.planning.cells import Scope
from harness.planning.suite import Suite
from harness.planning.suite_model import LayerSettings, ProfileKeys, Shape
from harness.timing.settings import Operation, TimingSettings


class RuntimeTiming(TimingSettings):
    """The settings of the measurement.

    Attributes:
        processes: how many processes, one after the other, measure each point of a sweep, so that their medians can be
            compared.
    """

    processes: Count = 1


class Sweep(Settings):
    """A curve: event shapes and batch sizes, of which one varies.

    Attributes:
        shapes: event shapes, (C, L) or (C, H, W).
        batch: events of a call.
        batches: several such numbers, in place of `batch`.
    """

    shapes: Annotated[tuple[Shape, ...], Field(min_length=1)]
    batch: Count | None = None
    batches: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes, one or more."""
        return self.batches or ((self.batch,) if self.batch is not None else ())

    @model_validator(mode="after")
    def _one_batch_key(self) -> Sweep:
        if (self.batch is None) == (self.batches is None):
            raise ValueError("a sweep has either batch (a number) or batches (a list)")
        return self


class TimedProfile(ProfileKeys):
    """One size of the suite.

    Attributes:
        timing: settings of the measurement.
    """

    timing: RuntimeTiming | None = None


class RuntimeSuite(Suite, kind="runtime"):
    """A suite that times the layers of all rows side by side at every point of its sweeps.

    Attributes:
        operations: the calls that are timed.
    """

    cell_model: ClassVar[type[LayerSettings]] = LayerSettings  # layers are timed alone, on random events
    columns_key: ClassVar[str] = "sweeps"
    column_model: ClassVar[type[Settings]] = Sweep
    profile_model: ClassVar[type[ProfileKeys]] = TimedProfile
    shapes = "events"

    operations: Annotated[tuple[Operation, ...], Field(min_length=1)] = ("forward", "forward_backward", "inverse")

    def expand(self, scope: Scope, common: Mapping[str, Any], data: object) -> Iterator[RuntimeTrial]:
        """Yield every point in one process before any in a second: an unfinished run has all points."""
        timing = scope.profile.timing or RuntimeTiming()
        for process in range(timing.processes):
            for column, cells in scope.cells.items():
                sweep: Sweep = scope.profile.sweeps[column]
                for shape in sweep.shapes:
                    for batch in sweep.batch_sizes:
                        yield RuntimeTrial(
                            **common,
                            sweep=column,
                            shape=shape,
                            batch=batch,
                            layers=tuple(cell.layer for cell in cells),
                            operations=self.operations,
                            timing=TimingSettings(**timing.model_dump(exclude={"processes"})),
                            process=process,
                        )
