"""The settings of a conformance trial."""

from __future__ import annotations

from typing import Any, Literal, get_args

from harness.core.settings import Count, LayerRef
from harness.core.trial import Trial

Weights = Literal["random", "trained"]
"""Weights away from initialisation by noise, or after some steps of training."""


class ConformanceTrial(Trial):
    """Check one layer on one event shape, without data.

    No check-layer precedes it: a faulty layer is a result.
    """

    kind: Literal["conformance"] = "conformance"
    label: str
    shape: tuple[Count, ...]
    layer: LayerRef

    @property
    def layers_to_check(self) -> tuple[LayerRef, ...]:
        """None."""
        return ()

    @property
    def cases(self) -> list[dict[str, Any]]:
        """One row for each kind of weights."""
        return [{"weights": weights} for weights in get_args(Weights)]
