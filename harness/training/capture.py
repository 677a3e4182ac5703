"""Calls as CUDA graphs: the kernels of a call, recorded once and then launched at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

WARM_UPS = 3  # runs of a call before it is captured, as CUDA requires

Result = TypeVar("Result")


class Recorder(Protocol):
    """Record calls on a CUDA device."""

    def rehearse(self, call: Callable[[], Result]) -> Result:
        """Run the call in the way that the device requires before recording."""

    def record(self, call: Callable[[], object]) -> Callable[[], object]:
        """Record the kernels of the call without running them; the result runs them."""


class CudaRecorder:
    """Recorder for the current device; `record` raises RuntimeError if a call cannot be captured."""

    def __init__(self) -> None:
        self._aside = torch.cuda.Stream()

    def rehearse(self, call: Callable[[], Result]) -> Result:
        """Run the call on a side stream, ordered with the current one."""
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
