"""The clock: several cases timed alternately in one process, so that what slows the machine slows them all."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

from harness.settings import TimingSettings

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Measurement:
    """Seconds per call of one case.

    Attributes:
        samples: one number per round: the time of `calls` calls, divided by `calls`.
        calls: how often a sample calls the case, chosen so that a sample lasts `min_sample_ms`.
        peak_bytes: the most device memory allocated during one call beyond what was held before; None on a CPU,
            where torch keeps no such count.
    """

    samples: tuple[float, ...]
    calls: int
    peak_bytes: int | None

    @property
    def median_ms(self) -> float:
        """Median over the samples, in milliseconds."""
        return 1e3 * statistics.median(self.samples)

    @property
    def iqr_ms(self) -> float:
        """Interquartile range of the samples, in milliseconds; 0 for a single sample."""
        if len(self.samples) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return 1e3 * (high - low)


def measure(
    cases: Mapping[Key, Callable[[], object]], settings: TimingSettings, device: torch.device
) -> dict[Key, Measurement]:
    """Time every case, one sample of each per round, and return case -> Measurement.

    Each case is first called `warmup` times, then as often as shows how many calls a sample needs. On a GPU the
    device is synchronised before every reading of the clock. Garbage collection waits until the end.
    """
    calls, peaks = {}, {}
    for name, call in cases.items():
        for _ in range(settings.warmup):
            call()
        peaks[name] = _peak_bytes(call, device)
        once = _seconds(call, 1, device)
        again = _seconds(call, 1, device)
        calls[name] = max(1, math.ceil(settings.min_sample_ms / 1e3 / max(min(once, again), 1e-9)))
    samples: dict[Key, list[float]] = {name: [] for name in cases}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(settings.rounds):
            for name, call in cases.items():
                samples[name].append(_seconds(call, calls[name], device) / calls[name])
    finally:
        if collecting:
            gc.enable()
    return {name: Measurement(tuple(samples[name]), calls[name], peaks[name]) for name in cases}


def _seconds(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """Wall time of `calls` calls, the device's work included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _peak_bytes(call: Callable[[], object], device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
