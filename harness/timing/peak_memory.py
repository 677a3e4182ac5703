"""The most memory that one call needs beyond what was held before, as torch's allocators count it."""

from __future__ import annotations

from collections.abc import Callable

import torch


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """The largest sum of what the call has allocated and not yet freed, its results included.

    Tensors count, and whatever else takes memory from torch's allocator; the scratch memory of a library with an
    allocator of its own does not.
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
    """On a CPU torch keeps no count, but its profiler reports every allocation and every release."""
    with torch.autograd.profiler.profile(profile_memory=True) as trace:
        result = call()
    del result  # not before: it counts
    events = [event for event in trace.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most
