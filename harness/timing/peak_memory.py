"""The peak memory of one call beyond the memory held before it, as counted by torch's allocators."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

BOOKKEEPING = 16 << 10  # bytes; the layers of this project take up to 8,000, of Python objects
# The resident memory grows by huge pages, and a heap with gaps by some times the memory that is used at once.
UNEXPLAINED, GAPS = 4 << 20, 4  # bytes, and times


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Return the largest sum of memory that the call has allocated and not yet freed, its results included.

    This counts tensors and all other memory from torch's allocator, but not the memory of a library with another
    allocator, such as NumPy (see `bytes_outside_torch`).
    """
    if device.type != "cuda":
        return _counted(call)
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def bytes_outside_torch(call: Callable[[], object]) -> int:
    """Return the peak of the memory that a call takes from other allocators than torch's, beyond that held before it.

    That is the larger of two lower bounds. Python and NumPy report what they allocate. Of all others, such as the C
    library or a mapped file, only the growth of the resident memory is known. It counts if it exceeds `GAPS` times the
    peak that torch counts by more than `UNEXPLAINED`; memory kept from an earlier call is not seen.

    The call runs three times or four, the first time for what libraries allocate once.
    """
    call()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        traced = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    grown = _resident_growth(call)
    counted = _counted(call) if grown > UNEXPLAINED else 0
    return max(traced, grown - counted if grown - GAPS * counted > UNEXPLAINED else 0)


def is_notable(outside: int, tensor: Tensor) -> bool:
    """Return whether memory outside torch matters beside a batch of events, and is no mere bookkeeping of Python."""
    return outside > BOOKKEEPING + tensor.numel() * tensor.element_size() // 2


def _resident_growth(call: Callable[[], object]) -> int:
    """Return by how much the largest resident memory during a call exceeds that before it; 0 if unknown."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew, see proc(5)
        before = _status("VmRSS")
        call()
        return _status("VmHWM") - before
    except (OSError, StopIteration):
        return 0


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def _counted(call: Callable[[], object]) -> int:
    """Return the peak on a CPU, where torch keeps no count, but its profiler reports every allocation and release."""
    with torch.autograd.profiler.profile(profile_memory=True) as trace:
        call()
    events = [event for event in trace.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most
