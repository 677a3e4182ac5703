"""Time several cases alternately in one process, so that disturbances of the machine affect all of them.

Influences on a time besides the case, and the remedies (docs/performance/timing.md has the measurements behind them):

- Load of the machine: every round samples every case, in opposite order every other time.
- Caches left by the previous case: an untimed call precedes each sample of a fast case.
- Earlier allocations: `harness.execution.trial` makes the allocator keep memory; page faults are counted.
- Other processes on the core: the processor time of a sample is counted beside its wall time.
- Warming up: the cases take turns, untimed, until their times settle.
"""

from __future__ import annotations

import gc
import importlib
import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

from harness.core.settings import TimingSettings
from harness.timing.device_clock import device_seconds

Key = TypeVar("Key", bound=Hashable)

LEAST_ROUNDS = 5  # minimum, whatever the budget
SETTLED = 0.1  # warming up ends when no case's time falls by more than this fraction
LONGEST_WARM_UP = 4  # in multiples of the requested time
SLOW = 0.1  # seconds; a call of this length refills the caches itself


@dataclass(frozen=True)
class Sample:
    """One reading of the clock, per call.

    Attributes:
        seconds: wall time.
        cpu_seconds: processor time of all threads of this process.
        page_faults: pages that the kernel had to map.
    """

    seconds: float
    cpu_seconds: float = 0.0
    page_faults: float = 0.0


@dataclass(frozen=True)
class Measurement:
    """The samples of one case, in the order of the rounds.

    Attributes:
        samples: one per round, each the mean of `calls` calls.
        calls: number of calls in a sample, chosen so that a sample lasts `min_sample_ms`.
    """

    samples: tuple[Sample, ...]
    calls: int

    @property
    def median_ms(self) -> float:
        """Median over the samples, in milliseconds."""
        return _median_ms(self.samples)

    @property
    def iqr_ms(self) -> float:
        """Interquartile range of the samples, in milliseconds; 0 for a single sample."""
        if len(self.samples) < 2:
            return 0.0
        low, _, high = statistics.quantiles((sample.seconds for sample in self.samples), n=4, method="inclusive")
        return 1e3 * (high - low)

    @property
    def drift(self) -> float:
        """Median of the second half of the rounds over that of the first, less 1; 0 for a single sample."""
        if len(self.samples) < 2:
            return 0.0
        middle = len(self.samples) // 2
        return _median_ms(self.samples[middle:]) / _median_ms(self.samples[:middle]) - 1

    @property
    def cpu_share(self) -> float:
        """Processor time over wall time: about 1 for one thread that has a core to itself."""
        return statistics.median(sample.cpu_seconds / sample.seconds for sample in self.samples)

    @property
    def page_faults(self) -> float:
        """Mean number of page faults in a call."""
        return statistics.fmean(sample.page_faults for sample in self.samples)


def measure(
    cases: Mapping[Key, Callable[[], object]], settings: TimingSettings, device: torch.device
) -> dict[Key, Measurement]:
    """Time every case, one sample of each per round, and return case -> Measurement.

    On a GPU the device's own clock is read. Garbage collection waits until the end.
    After `budget_seconds` no further round starts, unless fewer than `LEAST_ROUNDS`.
    """
    samples: dict[Key, list[Sample]] = {name: [] for name in cases}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        costs = warm_up(cases, settings, device)
        calls = {name: max(1, math.ceil(settings.min_sample_ms / 1e3 / cost)) for name, cost in costs.items()}
        start = time.perf_counter()
        for number in range(settings.rounds):
            if number >= LEAST_ROUNDS and time.perf_counter() - start > settings.budget_seconds:
                break
            for name in list(cases)[:: -1 if number % 2 else 1]:
                if costs[name] < SLOW:
                    cases[name]()
                samples[name].append(_sample(cases[name], calls[name], device))
    finally:
        if collecting:
            gc.enable()
    return {name: Measurement(tuple(samples[name]), calls[name]) for name in cases}


def warm_up(
    cases: Mapping[Key, Callable[[], object]], settings: TimingSettings, device: torch.device
) -> dict[Key, float]:
    """Call all cases in turn, at least `warmup` times and for `warmup_seconds`, and until their times have settled.

    If they do not settle, stop after `LONGEST_WARM_UP` times that duration. Return the last seconds per call.
    """
    history: dict[Key, list[float]] = {name: [] for name in cases}
    start = time.perf_counter()
    passes = 0
    while cases:
        for name, call in cases.items():
            history[name].append(max(_sample(call, 1, device).seconds, 1e-9))
        passes += 1
        spent = time.perf_counter() - start
        settled = settings.warmup_seconds == 0 or all(map(has_settled, history.values()))
        if passes >= settings.warmup and spent >= settings.warmup_seconds and settled:
            break
        if settings.warmup_seconds and spent >= LONGEST_WARM_UP * settings.warmup_seconds:
            break
    return {name: statistics.median(times[-3:]) for name, times in history.items()}


def has_settled(times: list[float]) -> bool:
    """Return whether the last third of the times is no more than `SETTLED` below the third before it."""
    third = len(times) // 3
    if third < 2:
        return False
    return statistics.median(times[-third:]) >= (1 - SETTLED) * statistics.median(times[-2 * third : -third])


def _sample(call: Callable[[], object], calls: int, device: torch.device) -> Sample:
    """Return one reading over `calls` calls; on a CUDA device by its own clock (see `device_clock`)."""
    faults, cpu, start = _page_faults(), time.process_time(), time.perf_counter()
    if device.type == "cuda":
        seconds = device_seconds(call, calls, device) * calls
    else:
        for _ in range(calls):
            call()
        seconds = time.perf_counter() - start
    return Sample(seconds / calls, (time.process_time() - cpu) / calls, (_page_faults() - faults) / calls)


def _page_faults() -> int:
    """Return the pages mapped for this process so far, except those read from a disk; 0 if the system has no count."""
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)


def _median_ms(samples: tuple[Sample, ...]) -> float:
    return 1e3 * statistics.median(sample.seconds for sample in samples)
