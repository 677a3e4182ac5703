"""Settings of torch, and code of torch and of layers, that a layer could change for all code after it.

Compared and restored is what can change a number, a time or a count of others.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.modules.module as modules
from torch.optim import optimizer
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _python_dispatch as dispatch
from torch.utils._device import DeviceContext

from layers import InvertibleLinear

autograd = torch._C._autograd
CUDA = torch.backends.cuda
ADAM = importlib.import_module("torch.optim.adam")  # its package has no attribute of this name
MIXED = "mixed"  # precision of float32 for which torch has no old name

Setting = tuple[Callable[[], Any], Callable[[Any], object]]
Settings = dict[str, Setting]


class GlobalSettings:
    """The settings at the time of construction.

    These are: threads; default dtype and device; grad and inference mode, autocast and anomaly mode; deterministic
    algorithms, the precision of float32 and the choice of backends; the flush of denormal numbers; hooks of modules,
    optimisers and saved tensors; active modes of torch functions and operators; functions of torch, methods of its
    optimisers, kernels of its operators and methods of layers that were replaced; started threads.

    The state of random generators is not among them, since a layer may draw numbers.
    """

    def __init__(self) -> None:
        self._values, self._members = _values(), _members()

    def restore(self, functions: bool = True) -> list[str]:
        """Set all that has changed since back, and return each change as text, such as "default dtype: ... -> ...".

        A change that cannot be undone is returned once: its new value counts as unchanged from then on. `functions`:
        compare functions and methods, too, which takes most of the time.
        """
        before, now = self._values, _values()
        changed = [name for name, value in now.items() if not _same(before.get(name), value)]
        for name in (*changed, *_SETTINGS) if changed else ():  # twice, as old names of precisions change new ones
            if name in _SETTINGS and before[name] != MIXED and not _same(_read(name), before[name]):
                with contextlib.suppress(RuntimeError, OSError):  # such as a number that can be set only once
                    _SETTINGS[name][1](before[name])
        _remove_kernels(changed)
        self._values = _values()
        texts = [f"{name}: {_shown(before.get(name))} -> {_shown(now[name])}" for name in changed]
        if functions:
            for owner, name, old, new in list(_replaced(self._members, _members())):
                texts.append(f"{_LABELS.get(owner) or owner.__qualname__}.{name}: {_shown(old)} -> {_shown(new)}")
                if name in self._members[owner]:
                    setattr(owner, name, self._members[owner][name])
                else:
                    delattr(owner, name)
            self._members = _members()
        return texts


def _same(first: Any, second: Any) -> bool:
    return first is second or (type(first) is type(second) and bool(first == second))


def _values() -> dict[str, Any]:
    """Return the value of each setting, and an entry for each thread that works and each kernel that is replaced."""
    return {name: _read(name) for name in _SETTINGS} | _kernels() | _threads()


def _read(name: str) -> Any:
    try:
        return _SETTINGS[name][0]()
    except RuntimeError:
        return MIXED


def _shown(value: Any) -> str:
    if isinstance(value, dict | tuple | list):
        return str(len(value) or "none")
    return str(getattr(value, "__qualname__", getattr(value, "name", value)))


def _attributes(label: str, owner: Any, *names: str) -> Settings:
    return {f"{label}.{name}": (partial(getattr, owner, name), partial(setattr, owner, name)) for name in names}


@contextlib.contextmanager
def default_device_cpu() -> Iterator[None]:
    """Restore torch's default device afterwards, such as "meta", which keeps no values; inside it is the CPU."""
    before = _default_device()
    torch.set_default_device(None)
    try:
        yield
    finally:
        torch.set_default_device(before)


def _default_device() -> torch.device | None:
    """Return the default device that was set, or None: torch.get_default_device() does not tell these apart."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def _function_modes() -> list[Any]:
    """Return the active modes of torch functions, without that of the default device, which is a separate setting."""
    return [mode for mode in _get_current_function_mode_stack() if not isinstance(mode, DeviceContext)]


def _set_function_modes(modes: list[Any]) -> None:
    active = [_pop_mode() for _ in _get_current_function_mode_stack()]
    for mode in (*(mode for mode in active if isinstance(mode, DeviceContext)), *modes):
        _push_mode(mode)


def _set_dispatch_modes(modes: list[Any]) -> None:
    for _ in list(dispatch._get_current_dispatch_mode_stack()):
        dispatch._pop_mode()
    for mode in modes:
        dispatch._push_mode(mode)


_inference_guards: list[Any] = []  # kept, as the end of such a guard restores the mode before it


def _set_inference_mode(mode: bool) -> None:
    _inference_guards.append(torch.inference_mode(mode))
    _inference_guards[-1].__enter__()


def _set_saved_tensor_hooks(hooks: Any) -> None:
    while autograd._top_saved_tensors_default_hooks(True) not in (hooks, None):
        autograd._pop_saved_tensors_default_hooks()


def _flushes_denormals() -> bool:
    """Return whether this thread turns denormal numbers to zero; torch can set that, but not tell."""
    smallest = sys.float_info.min
    return smallest * 0.5 == 0.0


def _hooks(owner: Any, name: str) -> Setting:
    def read() -> Any:
        held = getattr(owner, name)
        return dict(held) if isinstance(held, dict) else held

    def write(value: Any) -> None:
        held = getattr(owner, name)
        if isinstance(held, dict):  # the same object, which other modules have imported
            held.clear()
            held.update(value)
        else:
            setattr(owner, name, value)

    return read, write


def _is_of_torch(function: Any) -> bool:
    """Return whether a function is written in Python in torch itself, some modules of which replace others."""
    code = getattr(function, "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(Path(torch.__file__).parent)


_LABELS: dict[Any, str] = {
    **{module: module.__name__ for module in (torch, torch.autograd, torch.fft, torch.linalg)},
    **{module: module.__name__ for module in (torch.nn.functional, torch.nn.init, ADAM)},
    torch.Tensor: "torch.Tensor",
    torch.nn.Module: "torch.nn.Module",
    optimizer.Optimizer: "torch.optim.Optimizer",
    torch.optim.Adam: "torch.optim.Adam",
}
Members = dict[Any, dict[str, Any]]
"""Module or class -> its members."""


def _members() -> Members:
    """Return the members of torch's modules and classes, of the interface of layers and of every layer class."""
    owners, pending = list(_LABELS), [InvertibleLinear]
    while pending:
        owners.append(pending.pop())
        pending += owners[-1].__subclasses__()
    return {owner: dict(vars(owner)) for owner in owners}


def _replaced(before: Members, now: Members) -> Iterator[tuple[Any, str, Any, Any]]:
    """Yield owner, name, old and new value of each function that was replaced, or that hides an inherited one."""
    for owner, members in before.items():
        current = now.get(owner, members)
        if members == current:  # by identity of the values: fast
            continue
        layer = isinstance(owner, type) and issubclass(owner, InvertibleLinear)
        bases = owner.__mro__[1:] if isinstance(owner, type) else ()
        for name in members.keys() | current.keys():
            new = current.get(name, "missing")
            inherited = next((vars(base)[name] for base in bases if name in vars(base)), new)
            old = members.get(name, None if layer else inherited)
            if old is not new and callable(new if old is None else old) and (layer or not _is_of_torch(new)):
                yield owner, name, old, new


BUSY = 0.05  # processor seconds of a thread of a pool, such as that of torch.compile, that does more than wait


def _threads() -> dict[str, str]:
    """Return the working threads of Python besides the main one and this one; those of a pool wait until they work."""
    threads = {}
    for thread in {*threading.enumerate()} - {threading.main_thread(), threading.current_thread()}:
        with contextlib.suppress(OSError, TypeError, AttributeError):  # it has ended, or this system does not tell
            spent = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))  # type: ignore[arg-type]
            target = getattr(thread, "_target", None)
            waits = type(thread) is not threading.Thread or target.__module__ == "concurrent.futures.thread"
            if spent > BUSY or not waits:
                threads[f"thread {thread.name} ({thread.native_id})"] = "started"
    return threads


_IMPLEMENTED = set(torch.library._impls)  # kernels that torch itself has registered
_COMPUTING = re.compile(r"aten/.*/(CPU|CUDA|Autograd\w*|Autocast\w*)")
"""Keys of torch.library for kernels that compute; torch registers others later, such as those that know shapes."""


def _kernels() -> dict[str, str]:
    """Return the kernels that Python code has registered for torch's operators, in place of torch's."""
    added = sorted(torch.library._impls - _IMPLEMENTED)
    return {f"kernel of {key}": "replaced" for key in added if _COMPUTING.fullmatch(key)}


def _remove_kernels(changed: list[str]) -> None:
    keys = {name.removeprefix("kernel of ") for name in changed if name.startswith("kernel of ")}
    for library in [held for held in gc.get_objects() if type(held) is torch.library.Library] if keys else []:
        if not keys.isdisjoint(library._op_impls):
            library._destroy()


_SETTINGS: Settings = {
    # First those that could change the values of others.
    "default device": (_default_device, torch.set_default_device),
    "modes of torch functions": (_function_modes, _set_function_modes),
    "modes of operators": (lambda: list(dispatch._get_current_dispatch_mode_stack()), _set_dispatch_modes),
    "inference mode": (torch.is_inference_mode_enabled, _set_inference_mode),
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "CUDA device": (lambda: torch.cuda.current_device() if torch.cuda.is_initialized() else 0, torch.cuda.set_device),
    "flush of denormal numbers": (_flushes_denormals, torch.set_flush_denormal),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "anomaly mode": (torch.is_anomaly_enabled, lambda value: torch.autograd.set_detect_anomaly(value)),
    "threads of autograd": (torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled),
    "hooks of saved tensors": (partial(autograd._top_saved_tensors_default_hooks, True), _set_saved_tensor_hooks),
    **{
        f"{what} on {device}": (partial(read, device), partial(write, device))
        for device in ("cpu", "cuda")
        for what, read, write in (
            ("autocast", torch.is_autocast_enabled, torch.set_autocast_enabled),
            ("dtype of autocast", torch.get_autocast_dtype, torch.set_autocast_dtype),
        )
    },
    "deterministic algorithms": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    **_attributes("torch.backends.cudnn", torch.backends.cudnn, "enabled", "benchmark", "deterministic", "allow_tf32"),
    **_attributes("torch.backends.mkldnn", torch.backends.mkldnn, "enabled", "deterministic"),
    **_attributes("torch.backends.opt_einsum", torch.backends.opt_einsum, "enabled", "strategy"),
    **_attributes(
        "torch.backends.cuda.matmul",
        torch.backends.cuda.matmul,
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_accumulation",
        "allow_tf32",
    ),
    **{
        f"{kind} attention": (getattr(CUDA, f"{kind}_sdp_enabled"), getattr(CUDA, f"enable_{kind}_sdp"))
        for kind in ("flash", "mem_efficient", "math", "cudnn")
    },
    "library of linear algebra": (torch._C._get_linalg_preferred_backend, torch._C._set_linalg_preferred_backend),
    "library of matrix products": (torch._C._get_blas_preferred_backend, torch._C._set_blas_preferred_backend),
    # The precision of float32 by torch's old names, as those of allow_tf32, and by its new ones, which these change.
    "float32_matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    **{
        f"float32 precision of {backend} {what}": (
            partial(torch._C._get_fp32_precision_getter, backend, what),
            partial(torch._C._set_fp32_precision_setter, backend, what),
        )
        for backend, what in (("generic", "all"), *product(("cuda", "mkldnn"), ("all", "matmul", "conv", "rnn")))
    },
    **{
        f"{owner.__name__}.{name}": _hooks(owner, name)
        for owner in (modules, optimizer)
        for name in vars(owner)
        if name.startswith("_global_")
    },
}
"""Name -> the functions that read and write it."""
