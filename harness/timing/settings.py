"""The settings of a measurement, without torch, so that a plan can be printed without it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.settings import Count, Positive, Settings

Operation = Literal["forward", "forward_backward", "log_det", "inverse", "inverse_warm"]
"""Timed operations of a layer; `harness.timing.operations` defines each."""


class TimingSettings(Settings):
    """The number and the duration of the calls of each case of a sweep point (see `harness.timing.timing`).

    Attributes:
        warmup: untimed calls of each case.
        warmup_seconds: of all cases; longer if times are not settled.
        rounds: timed samples of each case, all cases of a sweep point alternating.
        min_sample_ms: a sample repeats a fast call until it lasts this long.
        budget_seconds: no further round of an operation starts after this, but the first few always run.
    """

    warmup: Count = 3
    warmup_seconds: Annotated[float, Field(ge=0, strict=True)] = 0.0
    rounds: Count = 20
    min_sample_ms: Positive = 1.0
    budget_seconds: Positive = 60.0
