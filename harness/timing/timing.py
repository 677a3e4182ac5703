"""Time several cases alternately in one process, so that disturbances of the machine affect all of them.

Influences on a time besides the case, and the remedies (docs/performance/timing.md has the measurements behind them):

- Load of the machine: every round samples every case, in opposite order every other time.
- Caches left by the previous case: an untimed call precedes each sample of a fast case.
- Earlier allocations: `harness.execution.trial` makes the allocator keep memory; page faults are counted.
- Other processes on the core: the processor time of a sample is counted beside its wall time.
- Results kept from an earlier call: before each call of an `OperationCase` its input and weights get other values.
- Global settings that a case changes: they are restored after each of its samples.
- Warming up: the cases take turns, untimed, until their times settle.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from harness.core.global_settings import GlobalSettings
from harness.core.isolation.descendants import descendants
from harness.timing.operations import OperationCase
from harness.timing.settings import TimingSettings

Key = TypeVar("Key", bound=Hashable)

LEAST_ROUNDS = 5  # minimum, whatever the budget
SETTLED = 0.1  # warming up ends when no case's time falls by more than this fraction
LONGEST_WARM_UP = 4  # in multiples of the requested time
CACHES = 2  # sizes of the second-level cache of a GPU that are written between two calls
SLOW = 0.1  # seconds; a call of this length refills the caches itself


@dataclass(frozen=True)
class Sample:
    """One reading of the clock, per call."""

    seconds: float  # wall time
    cpu_seconds: float = 0.0  # of all threads of this process and of the processes that it has started
    page_faults: float = 0.0  # pages that the kernel had to map


@dataclass(frozen=True)
class Measurement:
    """The samples of one case, in the order of the rounds."""

    samples: tuple[Sample, ...]  # one per round, each the mean of `calls` calls
    calls: int  # in a sample, so that a sample lasts `min_sample_ms`
    changes: tuple[str, ...] = ()  # global settings that the case has changed (see `GlobalSettings.restore`)

    @property
    def median_ms(self) -> float:
        """Median over the samples, in milliseconds."""
        return 1e3 * statistics.median(sample.seconds for sample in self.samples)

    @property
    def iqr_ms(self) -> float:
        """Interquartile range of the samples, in milliseconds; 0 for a single sample."""
        low, high = np.quantile([sample.seconds for sample in self.samples], (0.25, 0.75))
        return 1e3 * float(high - low)

    @property
    def drift(self) -> float:
        """Median of the second half of the rounds over that of the first, less 1; 0 for a single sample."""
        if len(self.samples) < 2:
            return 0.0
        seconds, middle = [sample.seconds for sample in self.samples], len(self.samples) // 2
        return statistics.median(seconds[middle:]) / statistics.median(seconds[:middle]) - 1

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

    On a GPU the clock of the device is read. Garbage collection waits until the end.
    After `budget_seconds` no further round starts, unless fewer than `LEAST_ROUNDS`.
    """
    samples: dict[Key, list[Sample]] = {name: [] for name in cases}
    changes: dict[Key, dict[str, None]] = {name: {} for name in cases}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    before, children = GlobalSettings(), set[int]()

    def sample(name: Key, calls: int, untimed: bool) -> Sample:
        if untimed:
            cases[name]()
        result = _sample(cases[name], calls, device, children)
        changes[name] |= dict.fromkeys(before.restore())
        return result

    try:
        costs = warm_up({name: partial(sample, name, 1, False) for name in cases}, settings)
        children |= descendants(os.getpid())
        calls = {name: max(1, math.ceil(settings.min_sample_ms / 1e3 / cost)) for name, cost in costs.items()}
        start = time.perf_counter()
        for number in range(settings.rounds):
            if number >= LEAST_ROUNDS and time.perf_counter() - start > settings.budget_seconds:
                break
            for name in list(cases)[:: -1 if number % 2 else 1]:
                samples[name].append(sample(name, calls[name], costs[name] < SLOW))
    finally:
        if collecting:
            gc.enable()
    return {name: Measurement(tuple(samples[name]), calls[name], tuple(changes[name])) for name in cases}


def warm_up(cases: Mapping[Key, Callable[[], Sample]], settings: TimingSettings) -> dict[Key, float]:
    """Sample all cases in turn, at least `warmup` times and for `warmup_seconds`, and until their times have settled.

    If they do not settle, stop after `LONGEST_WARM_UP` times that duration. Return the last seconds per call.
    """
    history: dict[Key, list[float]] = {name: [] for name in cases}
    start = time.perf_counter()
    for passes in itertools.count(1):
        for name, sample in cases.items():
            history[name].append(max(sample().seconds, 1e-9))
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


def _sample(case: Callable[[], object], calls: int, device: torch.device, children: Collection[int] = ()) -> Sample:
    """Return one reading over `calls` calls, without rewriting; on a CUDA device by its clock (`device_seconds`)."""
    call, rewrite = (case.call, case.rewrite) if isinstance(case, OperationCase) else (case, None)
    seconds = cpu_seconds = page_faults = 0.0
    elsewhere = _cpu_of_children(children)
    each = calls if rewrite is None or device.type == "cuda" else 1
    for _ in range(calls // each):
        if rewrite is not None:
            rewrite()
        faults, cpu, start = _page_faults(), time.process_time(), time.perf_counter()
        if device.type == "cuda":
            seconds += device_seconds(call, calls, device, rewrite) * calls
        else:
            for _ in range(each):
                call()
            seconds += time.perf_counter() - start
        cpu_seconds += max(time.process_time() - cpu - _cost_of_clocks(), 0.0)
        page_faults += _page_faults() - faults
    cpu_seconds += max(_cpu_of_children(children) - elsewhere, 0.0)
    return Sample(seconds / calls, cpu_seconds / calls, page_faults / calls)


def device_seconds(
    call: Callable[[], object], calls: int, device: torch.device, rewrite: Callable[[], object] | None = None
) -> float:
    """Return the mean seconds of a call on the device, each between two events of the current stream.

    Before each call `rewrite` runs, if given, and a buffer larger than the cache is written, which also keeps the
    device busy while the host launches the call: launches count only if they take longer than the work.
    """
    size = CACHES * torch.cuda.get_device_properties(device).L2_cache_size
    other = torch.empty(max(size, 1), dtype=torch.uint8, device=device)
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)]
    torch.cuda.synchronize(device)
    for start, end in pairs:
        if rewrite is not None:
            rewrite()
        other.zero_()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize(device)
    return sum(start.elapsed_time(end) for start, end in pairs) / calls / 1e3


@cache
def _cost_of_clocks() -> float:
    """Return the processor time that reading the clocks around a call takes: a tenth of the fastest calls."""
    costs = []
    for _ in range(200):
        cpu, start = time.process_time(), time.perf_counter()
        time.perf_counter() - start
        costs.append(time.process_time() - cpu)
    return statistics.median(costs)


def _cpu_of_children(running: Collection[int]) -> float:
    """Return the processor time of the processes that this one has started: those that have ended, and `running`."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    nanoseconds = 0
    for process in running:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for task in Path(f"/proc/{process}/task").iterdir():
                nanoseconds += int((task / "schedstat").read_text().split()[0])
    return used.ru_utime + used.ru_stime + nanoseconds / 1e9


def _page_faults() -> int:
    """Return the pages mapped for this process so far, except those read from a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
