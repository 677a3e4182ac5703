"""Calls as CUDA graphs: what a call starts on the device, recorded once and started again at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

WARM_UPS = 3  # runs of a call before it is captured, as CUDA asks

Result = TypeVar("Result")


class Recorder(Protocol):
    """What a CUDA device does with a call."""

    def rehearse(self, call: Callable[[], Result]) -> Result:
        """Run the call as the device wants it before it is recorded."""

    def record(self, call: Callable[[], object]) -> Callable[[], object]:
        """Record what the call starts, and run none of it; the result does."""


class CudaRecorder:
    """On the current device. Raises RuntimeError from `record` where a call cannot be captured."""

    def __init__(self) -> None:
        self._aside = torch.cuda.Stream()

    def rehearse(self, call: Callable[[], Result]) -> Result:
        """Run the call on a stream aside, in order with what is on the current one."""
        self._aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._aside):
            result = call()
        torch.cuda.current_stream().wait_stream(self._aside)
        return result

    def record(self, call: Callable[[], object]) -> Callable[[], object]:
        """Capture the call as a graph."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay
