"""The settings of a density trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.core.trial import Trial


class DensityTrial(Trial):
    """Train one flow on one data set with one seed, evaluate it on the test split, audit the likelihood."""

    repeats: ClassVar[str] = "seed"

    kind: Literal["density"] = "density"
    data: DataRef
    layer: LayerRef
    flow: FlowSettings
    training: TrainingSettings
    seed: int

    @property
    def slug(self) -> str:
        """The readable part of the id: data set, row and seed."""
        return f"{self.data.label}-{self.layer.row}-s{self.seed}"

    @property
    def column(self) -> str:
        """The label of the data set."""
        return self.data.label

    @property
    def fields(self) -> dict[str, Any]:
        """Data set, layer and seed."""
        return super().fields | {"seed": self.seed}

    @property
    def data_sets(self) -> tuple[DataRef, ...]:
        """The data set."""
        return (self.data,)

    @property
    def steps(self) -> int:
        """The training steps."""
        return self.training.steps

    def with_checksums(self, checksums: Mapping[DataRef, str | None]) -> Self:
        """Return the same trial on data with these checksums; without one for its data set, the trial itself."""
        if self.data.arrays not in checksums:
            return self
        # Not a copy, which would keep the cached id.
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**values | {"data": self.data.model_copy(update={"checksum": checksums[self.data.arrays]})})
