"""The clock of a CUDA device: events around each call, whose inputs are in no cache."""

from __future__ import annotations

from collections.abc import Callable

import torch

CACHES = 2  # sizes of the second-level cache that are written between two calls


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
