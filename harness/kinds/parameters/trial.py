"""A parameters trial: build one model and count it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from harness.core.records import Record, blank_record
from harness.core.settings import Count, FlowSettings, LayerRef, Progress
from harness.core.trial import IDENTITY, ORIGIN, OUTCOME, Trial

MEASURES = dict.fromkeys(("parameters", "published", "masked_free"), "Int64 >= 0")


class ParametersTrial(Trial):
    """Build one model and count its parameters."""

    columns: ClassVar[Mapping[str, str]] = IDENTITY | {"width": "Int64"} | OUTCOME | MEASURES | ORIGIN
    computes: ClassVar[bool] = False
    run_module: ClassVar[str] = "trial"

    kind: Literal["parameters"] = "parameters"
    label: str  # the data set with this event shape
    shape: tuple[Count, ...]
    layer: LayerRef
    flow: FlowSettings

    @property
    def slug(self) -> str:
        """The readable part of the id: data set, row and width."""
        return f"{self.label}-{self.layer.row}-w{self.flow.width}"

    @property
    def layer_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the events of its layers."""
        from harness.pipeline.models import layer_shapes  # imports torch

        return tuple(layer_shapes(self.shape, self.flow))

    @property
    def place(self) -> str:
        """Data set and coupling width."""
        return f"{self.label}, width {self.flow.width}"

    @property
    def position(self) -> tuple[int, ...]:
        """The coupling width."""
        return (self.flow.width,)

    @property
    def fields(self) -> dict[str, Any]:
        """Data set, layer and coupling width."""
        return super().fields | {"width": self.flow.width}

    @property
    def required(self) -> tuple[str, ...]:
        """The counts."""
        return "parameters", "masked_free"

    @classmethod
    def headline(cls, rows: Sequence[Mapping[str, Any]]) -> str:
        """Return the number of parameters."""
        return f"{rows[0]['parameters']:,} parameters"


def run(trial: ParametersTrial, root: Path | None, out: Path, progress: Progress, checkpoints: object = None) -> Record:
    """Count the parameters of the built model, with and without entries that a mask hides."""
    from harness.pipeline.models import build_flow  # these import torch
    from layers import count_entries, free_parameters

    flow = build_flow(trial.shape, trial.layer, trial.flow, seed=0)
    record = blank_record(trial, "ok", None)
    counts = {"parameters": count_entries(flow.parameters()), "masked_free": free_parameters(flow)}
    record.rows = [trial.fields | counts]
    progress(1.0, f"{counts['parameters']:,} parameters")
    return record
