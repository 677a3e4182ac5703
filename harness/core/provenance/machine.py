"""Resources of this machine for trials: cores, GPUs, and whether the memory of a process can be read."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

UNKNOWN_MEMORY = 4 << 30  # bytes assumed to be available if the system does not report them
_FIELD = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def usable_cores() -> int:
    """Return the number of cores that this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES; import torch only if that is not set."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(part.strip() for part in named.split(",") if part.strip() not in ("", "-1"))
    import torch

    return tuple(map(str, range(torch.cuda.device_count())))


def cpu_model() -> str:
    """Return the processor's name from the kernel, else from `platform`."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def available_memory() -> int:
    """Return the bytes that this process may still allocate: the system's free memory, within its data limit."""
    try:
        fields = dict(_FIELD.findall(Path("/proc/meminfo").read_text(encoding="utf-8")))
        left = 1024 * int(fields["MemAvailable"])
        usage = dict(_FIELD.findall(Path("/proc/self/status").read_text(encoding="utf-8")))
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
        if limit != resource.RLIM_INFINITY:
            left = min(left, limit - 1024 * int(usage["VmData"]))
    except (OSError, KeyError, ImportError):
        return UNKNOWN_MEMORY
    return max(left, 0)


def memory_watched() -> bool:
    """Return whether this system reports the memory of a process (Linux's /proc does)."""
    return Path("/proc/self/status").is_file()
