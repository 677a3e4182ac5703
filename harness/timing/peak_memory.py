"""The peak memory of one call beyond the memory held before it, as counted by torch's allocators."""

from __future__ import annotations

from collections.abc import Callable

import torch


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Return the largest sum of memory that the call has allocated and not yet freed, its results included.

    This counts tensors and all other memory from torch's allocator, but not the scratch memory of a library with its
    own allocator.
    """
    if device.type != "cuda":
        return _traced(call)
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _traced(call: Callable[[], object]) -> int:
    """Return the peak on a CPU, where torch keeps no count, but its profiler reports every allocation and release."""
    with torch.autograd.profiler.profile(profile_memory=True) as trace:
        result = call()
    del result  # not earlier, because the result counts
    events = [event for event in trace.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most
