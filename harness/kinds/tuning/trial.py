"""The settings of a candidate of a tuning."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from harness.kinds.density.trial import FlowTrial


class CandidateTrial(FlowTrial):
    """Train one flow with one candidate of its tuning, evaluate it on the validation split and audit it in part."""

    repeats: ClassVar[str] = "candidate"
    stage: ClassVar[int] = 0

    kind: Literal["tuning"] = "tuning"
    candidate: int

    @property
    def slug(self) -> str:
        """The readable part of the id: data set, row and candidate."""
        return f"{self.data.label}-{self.layer.row}-c{self.candidate}"

    @property
    def fields(self) -> dict[str, Any]:
        """Data set, layer, candidate and seed."""
        return super().fields | {"candidate": self.candidate}
