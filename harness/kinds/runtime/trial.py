"""The settings of a runtime trial."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from harness.core.settings import Count, LayerRef
from harness.core.trial import IDENTITY, ORIGIN, OUTCOME, Trial
from harness.timing.settings import Operation, TimingSettings

MEASURES = {
    "parameters": "Int64 >= 0",
    **dict.fromkeys(("operation", "sweep", "shape"), "string"),
    **dict.fromkeys(("batch", "process"), "Int64 >= 0"),
    **dict.fromkeys(("median_ms", "iqr_ms"), "Float64 >= 0"),
    "drift": "Float64",
    **dict.fromkeys(("copy_ms", "cpu_share", "page_faults"), "Float64 >= 0"),
    **dict.fromkeys(("rounds", "calls", "peak_bytes"), "Int64 >= 0"),
    "outside_bytes": "Int64",
    "inverse_error": "Float64 >= 0",
    **dict.fromkeys(("backend", "dtype"), "string"),
}


class RuntimeTrial(Trial):
    """Time every row's layer at one sweep point, alternating, in a process that has its device to itself."""

    columns: ClassVar[Mapping[str, str]] = IDENTITY | OUTCOME | MEASURES | ORIGIN | {"remark": "string"}
    alone: ClassVar[bool] = True

    kind: Literal["runtime"] = "runtime"
    sweep: str
    shape: tuple[Count, ...]
    batch: Count
    layers: tuple[LayerRef, ...]
    operations: tuple[Operation, ...]
    dtype: Literal["float32", "float64"] = "float32"
    timing: TimingSettings = TimingSettings()
    process: Annotated[int, Field(ge=0, strict=True)] = 0

    @property
    def slug(self) -> str:
        """The readable part of the id: sweep, shape and batch, and the index of the process if there are several."""
        point = f"{self.sweep}-{'x'.join(map(str, self.shape))}-n{self.batch}"
        return f"{point}-p{self.process}" if self.process else point

    @property
    def column(self) -> str:
        """The label of the sweep."""
        return self.sweep

    @property
    def layers_under_test(self) -> tuple[LayerRef, ...]:
        """All layers, timed alternately."""
        return self.layers

    @property
    def layer_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of the sweep point."""
        return (self.shape,)

    @property
    def layer_batches(self) -> tuple[int, ...]:
        """The batch of the sweep point."""
        return (self.batch,)

    @property
    def place(self) -> str:
        """The sweep with shape and batch."""
        return f"{self.sweep}, {'×'.join(map(str, self.shape))}, batch {self.batch}"

    @property
    def position(self) -> tuple[int, ...]:
        """Shape and batch."""
        return *self.shape, self.batch

    @property
    def repeats(self) -> str:
        """The process."""
        return "process"

    @property
    def repeat(self) -> str:
        """The process, counted from 1."""
        return f"process {self.process + 1}"

    @property
    def fields(self) -> dict[str, Any]:
        """Sweep, shape, batch, process and number format."""
        return {
            "sweep": self.sweep,
            "shape": "x".join(map(str, self.shape)),
            "batch": self.batch,
            "process": self.process,
            "dtype": self.dtype,
        }

    @property
    def cases(self) -> list[dict[str, Any]]:
        """One row for each layer and operation."""
        cases = itertools.product(self.rows, self.operations)
        return [{"layer": row, "operation": operation} for row, operation in cases]

    @property
    def required(self) -> tuple[str, ...]:
        """The time."""
        return ("median_ms",)

    @property
    def cell(self) -> tuple[str, ...]:
        """The sweep point and the process: all layers share it."""
        return self.kind, self.place, "", self.repeat

    @classmethod
    def similar(cls, trial: Mapping[str, Any]) -> list[tuple[list[Any], float]]:
        """Return the same point, then the same sweep."""
        rows = [layer["row"] for layer in trial["layers"]]
        return [
            ([trial["shape"], trial["batch"], rows, trial["timing"]], 1.0),
            ([trial["sweep"], rows, trial["timing"]], 1.0),
        ]

    def without_rows(self, rows: Container[str]) -> Self:
        """Return the trial without the layers of these rows."""
        kept = [layer.model_dump() for layer in self.layers if layer.row not in rows]
        return type(self).model_validate(self.model_dump() | {"layers": kept})
