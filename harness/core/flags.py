"""Threads, numerical flags and allocator of a trial's process: the same for every layer."""

from __future__ import annotations

import ctypes
import sys

import torch

from harness.core.trial import Trial
from layers.kernels import load as kernels

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # of glibc's <malloc.h>
LARGEST_KEPT = 32 << 20  # bytes; the highest threshold that glibc takes
SHARE_KEPT = 8  # an eighth of a memory limit may remain free at the end of the heap


def configure(trial: Trial, memory: int | None = None) -> None:
    """Set the threads and the numerical flags of this process, which may hold `memory` bytes.

    A trial that is `deterministic` uses deterministic algorithms where they exist, and warns where they do not. The
    layers' kernels are loaded, and built if necessary, before anything is timed.
    """
    torch.set_num_threads(trial.threads)
    if trial.computes:
        kernels.load(trial.device)
    full_float32()
    if trial.deterministic:
        # Not use_deterministic_algorithms, because it imports torch._inductor, which no trial needs.
        torch.set_deterministic_debug_mode("warn")
        # It would also write NaN into new tensors: a second pass over memory that a kernel overwrites anyway.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if trial.computes:
        keep_freed_memory(memory)


def full_float32() -> None:
    """Use full float32 on CUDA (no TF32, which is off by 2e-4), and convolutions that are not auto-tuned."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


def keep_freed_memory(limit: int | None = None) -> bool:
    """Let the C allocator keep freed memory for the next step; return whether the allocator supports it.

    glibc returns large blocks to the system and faults every page in again, which slows large training steps
    (docs/performance/throughput.md) and makes the time of a call depend on earlier allocations of the process
    (docs/performance/timing.md). The price is memory, up to twice the peak. A trial under a limit, in bytes, must not
    be ended because of memory that it has freed: its largest blocks are returned at once, and free memory at the end of
    the heap is returned beyond an eighth of the limit.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    if limit is None:
        wanted = [(M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1)]
    else:
        wanted = [(M_MMAP_THRESHOLD, LARGEST_KEPT), (M_TRIM_THRESHOLD, min(limit // SHARE_KEPT, (1 << 31) - 1))]
    taken = [mallopt(option, value) for option, value in wanted]
    return all(taken)
