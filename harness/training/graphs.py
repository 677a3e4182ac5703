"""Training steps as one CUDA graph: a small model's step time is that of launching its kernels, one after the other.

A step is captured as a whole: the passes, the gradients' norm, the optimisers and the averages. Inputs that change from
step to step, the batch and the learning rates, have fixed places where the graph reads them. A step in a graph must not
wait for the device, nor copy from the host; `tests/harness/training/test_graphs.py` checks both without a device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.core.settings import TrainingSettings
from harness.training.capture import WARM_UPS, CudaRecorder, Recorder
from harness.training.updates import Measures, Updates

if TYPE_CHECKING:
    from flows import Flow

BatchMeasure = Callable[["Flow", Tensor, Tensor], Measures]
"""Function from a flow, a prepared batch and its log-det to the batch's measures."""


class PlainSteps:
    """Run steps one operation after the other.

    Attributes:
        graph: outcome of the request for a graph; None if there was none.
    """

    def __init__(self, updates: Updates, measure: BatchMeasure, graph: str | None = None) -> None:
        self._updates, self._measure = updates, measure
        self.graph = graph

    def take(self, x: Tensor, log_det: Tensor, number: int) -> Measures:
        """Take step `number` (1, 2, ...) on a batch; return its measures before the step."""
        return self._updates.step(lambda flow: self._measure(flow, x, log_det), number)


class CapturedSteps:
    """Run steps as a graph from step `WARM_UPS` + 1 on, or one operation after the other if that is impossible.

    The measures that `take` returns are overwritten by the next step.
    """

    def __init__(self, updates: Updates, measure: BatchMeasure, recorder: Recorder) -> None:
        self._updates, self._measure, self._recorder = updates, measure, recorder
        self._batch: tuple[Tensor, Tensor] | None = None
        self._rates: list[Tensor] = []
        self._measures: Measures = {}
        self._taken = 0
        self._replay: Callable[[], object] | None = None
        self.graph = f"requested; fewer than {WARM_UPS + 1} steps"

    def take(self, x: Tensor, log_det: Tensor, number: int) -> Measures:
        """Take step `number` (1, 2, ...) on a batch; return its measures before the step."""
        if self._batch is None:
            self._batch = torch.empty_like(x), torch.empty_like(log_det)
            self._rates = [torch.zeros((), device=x.device) for _ in self._updates.rates(number)]
        for held, value in zip(self._batch, (x, log_det), strict=True):
            held.copy_(value)
        for held, rate in zip(self._rates, self._updates.rates(number), strict=True):
            held.fill_(rate)
        self._taken += 1
        if self._taken == WARM_UPS + 1:
            self._record()
        if self._replay is not None:
            self._replay()
        elif self._taken <= WARM_UPS:
            self._recorder.rehearse(self._step)
        else:
            self._step()
        return self._measures

    def _step(self) -> None:
        assert self._batch is not None
        x, log_det = self._batch
        measures = self._updates.move(lambda flow: self._measure(flow, x, log_det), self._rates)
        self._measures = {unit: values.detach() for unit, values in measures.items()}

    def _record(self) -> None:
        try:
            self._replay = self._recorder.record(self._step)
            self.graph = f"whole steps, from the {WARM_UPS + 1}th on"
        except RuntimeError as error:
            self.graph = f"none: {str(error).partition(chr(10))[0]}"
            warnings.warn(f"training steps are not captured as a CUDA graph: {self.graph}", stacklevel=3)


def steps_of(
    updates: Updates, measure: BatchMeasure, settings: TrainingSettings, device: torch.device, *, drawn: bool = False
) -> PlainSteps | CapturedSteps:
    """Return the steps that the settings request, as far as the device supports them.

    Args:
        drawn: the measures are random estimates, which a graph would draw only once for all steps.
    """
    if not settings.cuda_graph:
        return PlainSteps(updates, measure)
    if drawn:
        return PlainSteps(updates, measure, "none: the likelihood is an estimate, drawn anew in every step")
    if device.type != "cuda":
        return PlainSteps(updates, measure, f"none: the device is {device.type}, not cuda")
    return CapturedSteps(updates, measure, CudaRecorder())
