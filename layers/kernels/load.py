"""The compiled operators of csrc/, loaded on first use; plain PyTorch is their reference and their fallback.

`torch.ops.invertbench` holds them once `load()` has returned True. The first load on a machine compiles them
(`layers.kernels.build`). Where that cannot be done, or INVERTBENCH_KERNELS=off, layers run as plain PyTorch: `load()`
returns False, and has warned once with the reason. The outcome holds for the process and its forks; a new
process tries again. The kernels for CUDA devices are a second library, loaded and built by the first layer that runs on
such a device (`layers.kernels.cuda`); the first declares the operators of both.
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from layers.kernels import cuda as cuda_build
from layers.kernels.build import BuildFailed, cache_folder, find_or_build

SWITCH = "INVERTBENCH_KERNELS"


@dataclass(frozen=True)
class Backend:
    """The backend that layers run on.

    Attributes:
        name: "cpp" on a CPU, "cuda" on a CUDA device, or "torch" where there are no kernels.
        build: the name of the build, which changes with the sources, the flags, the compiler and torch; None without.
        instructions: instruction set of the processor, "avx512", "avx2" or "portable"; architectures of the devices
            that the kernels are compiled for: "sm_90"; None without kernels.
        reason: why there are none, without paths of this machine; None with kernels.
    """

    name: str
    build: str | None = None
    instructions: str | None = None
    reason: str | None = None


_backends: dict[str, Backend] = {}  # by the type of device
_lock = threading.Lock()


def load(device: str = "cpu") -> bool:
    """Return whether `torch.ops.invertbench` can be called on this type of device.

    The first call in a process loads it, and may build it.
    """
    return (_backends.get(device) or backend(device)).name != "torch"


# torch.compile calls `load` and does not trace it; torch.compiler.assume_constant_result would take seconds to import.
load._dynamo_marked_constant = True  # type: ignore[attr-defined]


def serve(*tensors: Tensor) -> bool:
    """Return whether the operators support these tensors: all on one device, and of one precision, 32 or 64 bits.

    torch.func's transforms cannot differentiate operators written in C++: under them, plain PyTorch runs.
    """
    first = tensors[0]
    dtype, on_cpu = first.dtype, first.is_cpu
    if dtype not in (torch.float32, torch.float64) or torch._C._are_functorch_transforms_active():
        return False
    for tensor in tensors:  # layers ask in every call: a generator, or comparing devices, would take twice as long
        if tensor.dtype != dtype or not (tensor.is_cpu if on_cpu else tensor.device == first.device):
            return False
    return (on_cpu or first.is_cuda) and load("cpu" if on_cpu else "cuda")


def serve_on_processor(*tensors: Tensor) -> bool:
    """Return whether operators that are written for a processor alone support these tensors.

    They have no other precision for autocast, and no shapes for torch.compile: under both, plain PyTorch runs.
    """
    if not tensors[0].is_cpu or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    return serve(*tensors)


def serve_bfloat16(x: Tensor, weight: Tensor) -> bool:
    """Return whether the operators support bfloat16 events with a float32 weight, computing in float32: on CUDA."""
    if x.dtype != torch.bfloat16 or weight.dtype != torch.float32 or torch._C._are_functorch_transforms_active():
        return False
    return x.is_cuda and weight.device == x.device and load("cuda")


def loaded(device: str = "cpu") -> Backend | None:
    """Return the backend in use on this type of device; None if no layer has requested a kernel yet."""
    return _backends.get(device)


def backend(device: str = "cpu") -> Backend:
    """Return the backend of layers on this type of device, and load it if necessary."""
    with _lock:
        if "cpu" not in _backends:
            _backends["cpu"] = _load()
        if device not in _backends:
            _backends[device] = _load_cuda(_backends["cpu"])
        return _backends[device]


def _load() -> Backend:
    switch = os.environ.get(SWITCH, "on")
    if switch == "off":
        return Backend("torch", reason=f"{SWITCH}=off")
    if switch != "on":
        warnings.warn(f"{SWITCH}={switch} is neither on nor off; taken as on", RuntimeWarning, stacklevel=4)
    return _open("cpp", lambda: (find_or_build(cache_folder()), []))


def _load_cuda(on_cpu: Backend) -> Backend:
    """Load the library for the CUDA devices; the one for the processor is loaded or has failed before."""
    if on_cpu.name == "torch":
        return on_cpu
    return _open("cuda", lambda: cuda_build.find_or_build(cache_folder()), " on CUDA devices")


def _open(name: str, find: Callable[[], tuple[Path, list[str]]], where: str = "") -> Backend:
    """Load the library that `find` returns with its architectures; if that fails, warn and return plain PyTorch."""
    try:
        library, architectures = find()
        torch.ops.load_library(library)
        return Backend(name, library.parent.name, " ".join(architectures) or _instructions(library))
    except BuildFailed as error:
        reason, message = error.reason, str(error)
    except OSError as error:
        reason = f"the compiled kernels{where} cannot be loaded"
        message = f"{reason}: {error}"
    warnings.warn(f"layers run as plain PyTorch{where}, without kernels: {message}", RuntimeWarning, stacklevel=5)
    return Backend("torch", reason=reason)


def _instructions(library: Path) -> str:
    ask = ctypes.CDLL(str(library)).invertbench_instructions
    ask.restype = ctypes.c_char_p
    return str(ask().decode())
