"""Provenance: everything besides its settings that a result depends on, and the resources of this machine for trials.

Records have no paths and no user; the host name on request.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

SOURCE = ("layers", "flows", "csrc", "harness", "suites", "pyproject.toml")
NOT_ASKED = "no layer asked for a kernel"
UNKNOWN_MEMORY = 4 << 30  # bytes assumed to be available if the system does not report them
_FIELD = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def environment(device: str) -> dict[str, Any]:
    """Return versions, hardware (of the GPU on "cuda" alone) and numerical flags of this process, as JSON values."""
    import torch  # imported here, because the supervisor uses the rest of this module without torch

    facts: dict[str, Any] = {
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),  # names the CUDA build, which the package's version does not
            "numpy": package_version("numpy"),
            "invertbench": package_version("invertbench"),
        },
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        **_backend(device),
    }
    if device == "cuda":
        facts["cuda"] = {
            "name": torch.cuda.get_device_name(),
            "capability": ".".join(map(str, torch.cuda.get_device_capability())),
            "driver": next(iter(_nvidia_smi("driver_version")), None),
            "clocks_mhz": clocks(),
            "runtime": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
            "tf32_convolution": torch.backends.cudnn.allow_tf32,
        }
    return facts


def _backend(device: str) -> dict[str, Any]:
    """Return "cpp" or "cuda" with the build of the kernels if they were loaded, else "torch" with the reason."""
    from layers.kernels import load as kernels

    used = kernels.loaded(device)
    if used is None:
        return {"backend": "torch", "kernels": {"reason": NOT_ASKED}}
    facts = {"build": used.build, "instructions": used.instructions, "reason": used.reason}
    return {"backend": used.name, "kernels": {name: fact for name, fact in facts.items() if fact is not None}}


def package_version(name: str) -> str | None:
    """Return the installed version; None for a package that runs without being installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def git_state(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the commit of the checkout whose root is `folder`, whether its files differ, and the diff of its source.

    The digest of the diff is part of the state; new files are not in it. An installed copy may be inside a checkout of
    another project, whose commit would be misleading: it gives None and an empty diff, as does a failure of git.
    """
    try:
        if Path(_git(folder, "rev-parse", "--show-toplevel")).resolve() != folder.resolve():
            return None, ""
        state: dict[str, Any] = {"commit": _git(folder, "rev-parse", "HEAD")}
        state["dirty"] = bool(_git(folder, "status", "--porcelain"))
        diff = _git(folder, "diff", "--no-color", "--no-ext-diff", "HEAD", "--", *SOURCE)
    except (OSError, subprocess.SubprocessError):
        return None, ""
    if diff:
        state["diff"] = hashlib.sha256(diff.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        diff += "\n"
    return state, diff


def _git(folder: Path, *arguments: str) -> str:
    # Without optional locks, trials that run side by side do not compete for the index.
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, check=True, timeout=10, text=True, errors="surrogateescape")
    return done.stdout.strip()


def clocks() -> dict[str, int]:
    """Return current and highest clocks of the current CUDA device in MHz, by nvidia-smi's names; {} without it."""
    names = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem")
    numbers = _nvidia_smi(*names)
    return {name: int(number) for name, number in zip(names, numbers, strict=False) if number.isdigit()}


def _nvidia_smi(*names: str) -> list[str]:
    """Return nvidia-smi's values for the current CUDA device; empty if it cannot be queried."""
    import torch

    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    try:
        identity = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        command.append(f"--id=GPU-{identity.removeprefix('GPU-')}")
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError, RuntimeError, AssertionError):
        return []
    return [field.strip() for field in done.stdout.strip().split(",")]


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
