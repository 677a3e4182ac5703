"""Provenance: everything besides its settings that a result depends on, and the resources of this machine for trials.

Records have no paths and no user; the host name on request.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import resource
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

SOURCE = ("layers", "flows", "csrc", "harness", "suites", "pyproject.toml")
NOT_ASKED = "no layer asked for a kernel"
CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem")  # of a GPU: current and highest
_MODEL = re.compile(r"^model name[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def environment(device: str) -> dict[str, Any]:
    """Return versions, hardware (of the GPU on "cuda" alone) and numerical flags of this process, as JSON values."""
    import torch  # imported here, because the supervisor uses the rest of this module without torch

    from layers.kernels import load as kernels

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
    }
    used = kernels.loaded(device)
    if used is None:
        facts |= {"backend": "torch", "kernels": {"reason": NOT_ASKED}}
    else:
        build = {"build": used.build, "instructions": used.instructions, "reason": used.reason}
        facts |= {"backend": used.name, "kernels": {name: fact for name, fact in build.items() if fact is not None}}
    if device == "cuda":
        queried = _nvidia_smi()
        facts["cuda"] = {
            "name": torch.cuda.get_device_name(),
            "capability": ".".join(map(str, torch.cuda.get_device_capability())),
            "driver": queried.get("driver_version"),
            "clocks_mhz": {name: int(queried[name]) for name in CLOCKS if queried.get(name, "").isdigit()},
            "runtime": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
            "tf32_convolution": torch.backends.cudnn.allow_tf32,
        }
    return facts


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


def _nvidia_smi() -> dict[str, str]:
    """Return the driver and the clocks in MHz of the current CUDA device by nvidia-smi's names; empty without it."""
    import torch

    names = ("driver_version", *CLOCKS)
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    try:
        identity = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        command.append(f"--id=GPU-{identity.removeprefix('GPU-')}")
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError, RuntimeError, AssertionError):
        return {}
    return dict(zip(names, map(str.strip, done.stdout.split(",")), strict=False))


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
    with contextlib.suppress(OSError):
        if (line := _MODEL.search(Path("/proc/cpuinfo").read_text(encoding="utf-8"))) is not None:
            return line[1]
    return platform.processor() or platform.machine()


def available_memory() -> int:
    """Return the bytes that this process may still allocate: the system's free memory, within its data limit."""
    left = int(psutil.virtual_memory().available)
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit != resource.RLIM_INFINITY:
        left = min(left, limit - psutil.Process().memory_info().data)
    return max(left, 0)
