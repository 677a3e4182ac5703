"""The compiled operators of csrc/, loaded on first use; plain PyTorch is their reference and their fallback.

`torch.ops.invertbench` holds them once `load()` has said True. The first load on a machine compiles them
(`layers.kernel_build`). Where that cannot be done, or INVERTBENCH_KERNELS=off, layers run as plain PyTorch: `load()`
says False, and has warned once with the reason. The outcome holds for the process and those forked from it; a new
process tries again.
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from layers.kernel_build import BuildFailed, cache_folder, find_or_build

SWITCH = "INVERTBENCH_KERNELS"


@dataclass(frozen=True)
class Backend:
    """What layers run on.

    Attributes:
        name: "cpp", or "torch" where there are no kernels.
        build: the name of the build, which changes with the sources, the flags, the compiler and torch; None without.
        instructions: of the processor, that the kernels use: "avx512", "avx2" or "portable"; None without kernels.
        reason: why there are none, in words that name no place of this machine; None with kernels.
    """

    name: str
    build: str | None = None
    instructions: str | None = None
    reason: str | None = None


_backend: Backend | None = None
_lock = threading.Lock()


def load() -> bool:
    """Whether `torch.ops.invertbench` can be called: the first call in a process loads it, and may build it."""
    return (_backend or backend()).name != "torch"


def serve(*tensors: Tensor) -> bool:
    """Whether the operators take these tensors, all of them on a CPU and of one precision, 32 or 64 bits.

    torch.func's transforms do not know how to differentiate operators written in C++: under them, plain PyTorch runs.
    """
    dtype = tensors[0].dtype
    if dtype not in (torch.float32, torch.float64) or torch._C._are_functorch_transforms_active():
        return False
    return all(tensor.is_cpu and tensor.dtype == dtype for tensor in tensors) and load()


def loaded() -> Backend | None:
    """What layers have run on so far; None where no layer has asked for a kernel."""
    return _backend


def backend() -> Backend:
    """What layers run on, loaded if it has not been."""
    global _backend
    with _lock:
        if _backend is None:
            _backend = _load()
        return _backend


def _load() -> Backend:
    switch = os.environ.get(SWITCH, "on")
    if switch == "off":
        return Backend("torch", reason=f"{SWITCH}=off")
    if switch != "on":
        warnings.warn(f"{SWITCH}={switch} is neither on nor off; taken as on", RuntimeWarning, stacklevel=4)
    try:
        library = find_or_build(cache_folder())
        torch.ops.load_library(library)
        instructions = _instructions(library)
    except BuildFailed as error:
        return _without(error.reason, str(error))
    except OSError as error:
        return _without("the compiled kernels cannot be loaded", f"the compiled kernels cannot be loaded: {error}")
    return Backend("cpp", library.parent.name, instructions)


def _without(reason: str, message: str) -> Backend:
    warnings.warn(f"layers run as plain PyTorch, without kernels: {message}", RuntimeWarning, stacklevel=5)
    return Backend("torch", reason=reason)


def _instructions(library: Path) -> str:
    """The kind of instructions that the library chose on this processor."""
    ask = ctypes.CDLL(str(library)).invertbench_instructions
    ask.restype = ctypes.c_char_p
    return str(ask().decode())
