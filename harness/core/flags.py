"""Threads, numerical flags and allocator of a trial's process: the same for every layer."""

from __future__ import annotations

import ctypes
import sys

import torch

from harness.core.settings import DensityTrial, ParametersTrial, Trial
from layers.kernels import load as kernels

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # of glibc's <malloc.h>
LARGEST_KEPT = 32 << 20  # bytes; the highest threshold that glibc takes
SHARE_KEPT = 8  # an eighth of a memory limit may lie freed at the end of the heap


def configure(trial: Trial, memory: int | None = None) -> None:
    """Set the threads and the numerical flags of this process.

    Full float32 everywhere (no TF32) and no auto-tuned convolutions. Density trials use deterministic
    algorithms where there are any, with a warning where there are none; runtime trials take the kernels that
    users get. The layers' kernels are loaded, and built if need be, before anything is timed.

    Args:
        trial: its kind and its threads.
        memory: the limit that the trial runs under, in bytes.
    """
    torch.set_num_threads(trial.threads)
    if not isinstance(trial, ParametersTrial):
        kernels.load(trial.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    if isinstance(trial, DensityTrial):
        # Not use_deterministic_algorithms, which imports a compiler that no trial needs.
        torch.set_deterministic_debug_mode("warn")
        # Which would also write NaN into new tensors: a second pass over what a kernel is about to write.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if not isinstance(trial, ParametersTrial):
        keep_freed_memory(memory)


def keep_freed_memory(limit: int | None = None) -> bool:
    """Let the C allocator keep what is freed, so that the next step reuses it; whether the allocator can.

    glibc returns large blocks to the system and faults every page in again, which large training steps feel
    (docs/throughput.md), and which makes the time of one call depend on what the process allocated before it
    (docs/timing.md). The price is memory, up to twice the peak. A trial under a limit must not be ended for
    memory that it had freed: its largest blocks go back at once, and what lies freed at the end of the heap
    goes back beyond an eighth of the limit.

    Args:
        limit: bytes that the process may hold; None: no limit.
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
