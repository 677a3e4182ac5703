"""Settings of torch and of the process that a layer could change for all code after it: compare and restore them."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.modules.module as modules
from torch.optim import optimizer
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _python_dispatch as dispatch
from torch.utils._device import DeviceContext

Values = dict[str, Any]

Changes = dict[str, tuple[Any, Any]]
"""Name -> (value before, value now)."""

Settings = dict[str, tuple[Callable[[], Any], Callable[[Any], object]]]
"""Name -> the functions that read and write a setting."""

MISSING = "missing"


def _same(first: Any, second: Any) -> bool:
    return first is second or (type(first) is type(second) and bool(first == second))


def _differences(before: Values, now: Values) -> Changes:
    return {name: (value, now[name]) for name, value in before.items() if not _same(value, now[name])}


class _Group(NamedTuple):
    """Settings that are read and written together, each under its name for messages."""

    read: Callable[[], Values]
    write: Callable[[Values], None]
    changes: Callable[[Values, Values], Changes] = _differences


class GlobalSettings:
    """The settings at the time of construction.

    These are: threads, processor affinity and niceness; default dtype and device; grad and inference mode, autocast and
    anomaly mode; deterministic algorithms, the precision of float32 and the choice of backends; the flush of denormal
    numbers; hooks of all modules, optimisers and saved tensors; active modes of torch functions and operators, and the
    profiler; functions of torch that were replaced; garbage collection, and functions that trace or profile Python.

    The state of random generators is not among them, since a layer may draw numbers.
    """

    def __init__(self) -> None:
        self._values = [group.read() for group in _GROUPS]

    def restore(self) -> list[str]:
        """Set all that has changed since back, and return each change as text, such as "default dtype: ... -> ...".

        A change that cannot be undone is returned once: its new value counts as unchanged from then on.
        """
        texts: list[str] = []
        for number, (group, before) in enumerate(zip(_GROUPS, self._values, strict=True)):
            changes = group.changes(before, group.read())
            if not changes:
                continue
            group.write(before)
            self._values[number] = group.read()
            lasting = group.changes(before, self._values[number])
            for name, values in changes.items():
                end = " (cannot be undone)" if name in lasting else ""
                texts.append(f"{name}: {' -> '.join(map(_shown, values))}{end}")
        return texts


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return _shown(list(value.values()))
    if isinstance(value, tuple | list):
        return f"{len(value)} ({', '.join(map(_shown, value))})" if value else "none"
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    plain = value is None or isinstance(value, bool | int | float | str | torch.dtype | torch.device)
    return str(value) if plain else str(getattr(value, "name", type(value).__qualname__))


def _one_by_one(settings: Settings) -> _Group:
    """Return a group of independent settings, each with the functions that read and write it."""

    def read() -> Values:
        return {name: get() for name, (get, _) in settings.items()}

    def write(values: Values) -> None:
        for name, (get, put) in settings.items():
            if not _same(get(), values[name]):
                with contextlib.suppress(RuntimeError, OSError):  # such as a number that can be set only once
                    put(values[name])

    return _Group(read, write)


def _attributes(label: str, owner: Any, *names: str) -> Settings:
    return {f"{label}.{name}": (partial(getattr, owner, name), partial(setattr, owner, name)) for name in names}


def _function_modes() -> list[Any]:
    """Return the active modes of torch functions, without that of the default device, which is a setting of its own."""
    return [mode for mode in _get_current_function_mode_stack() if not isinstance(mode, DeviceContext)]


def _set_function_modes(modes: list[Any]) -> None:
    devices = []
    while _get_current_function_mode_stack():
        mode = _pop_mode()
        if isinstance(mode, DeviceContext):
            devices.append(mode)
    for mode in (*devices, *modes):
        _push_mode(mode)


def _set_dispatch_modes(modes: list[Any]) -> None:
    while dispatch._get_current_dispatch_mode_stack():
        dispatch._pop_mode()
    for mode in modes:
        dispatch._push_mode(mode)


def _default_device() -> torch.device | None:
    """Return the default device that was set, or None: torch.get_default_device() does not tell these apart."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


_inference_guards: list[Any] = []  # kept, as the end of such a guard restores the mode before it


def _set_inference_mode(mode: bool) -> None:
    guard = torch.inference_mode(mode)
    guard.__enter__()
    _inference_guards.append(guard)


def _set_saved_tensor_hooks(hooks: Any) -> None:
    while torch._C._autograd._top_saved_tensors_default_hooks(True) not in (hooks, None):
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _set_saved_tensor_hooks_disabled(message: str | None) -> None:
    if message is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        torch._C._autograd._saved_tensors_hooks_disable(message)


def _set_profiling(active: bool) -> None:
    if not active:
        torch._C._autograd._disable_profiler()


def _flushes_denormals() -> bool:
    """Return whether this thread turns denormal numbers to zero; torch can set that, but not tell."""
    smallest = sys.float_info.min
    return smallest * 0.5 == 0.0


def _cuda_device() -> int:
    return torch.cuda.current_device() if torch.cuda.is_initialized() else 0


def _affinity() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []


def _set_affinity(cores: list[int]) -> None:
    if sys.platform == "linux":
        os.sched_setaffinity(0, cores)


def _autocast(device: str) -> Settings:
    return {
        f"autocast on {device}": (
            lambda: torch.is_autocast_enabled(device),
            lambda value: torch.set_autocast_enabled(device, value),
        ),
        f"dtype of autocast on {device}": (
            lambda: torch.get_autocast_dtype(device),
            lambda value: torch.set_autocast_dtype(device, value),
        ),
    }


_PRECISIONS = (
    ("generic", "all"),
    *((backend, what) for backend in ("cuda", "mkldnn") for what in ("all", "matmul", "conv", "rnn")),
)


def _read_precisions() -> Values:
    """Return the precision of float32 by torch's new names and, where these do not contradict them, the old ones."""
    values: Values = {
        f"float32 precision of {backend} {what}": torch._C._get_fp32_precision_getter(backend, what)
        for backend, what in _PRECISIONS
    }
    old = {
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "torch.backends.cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
        "torch.backends.cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    }
    for name, get in old.items():
        try:
            values[name] = get()
        except RuntimeError:  # torch refuses to name a mixture of the two
            values[name] = "mixed"
    return values


def _write_precisions(values: Values) -> None:
    """Write the new names before and after the old ones: torch refuses those beside others, and they change more."""

    def write_new() -> None:
        for backend, what in _PRECISIONS:
            torch._C._set_fp32_precision_setter(backend, what, values[f"float32 precision of {backend} {what}"])

    write_new()
    with contextlib.suppress(RuntimeError, ValueError):  # "mixed"
        torch.set_float32_matmul_precision(values["float32_matmul_precision"])
        torch.backends.cuda.matmul.allow_tf32 = values["torch.backends.cuda.matmul.allow_tf32"]
        torch.backends.cudnn.allow_tf32 = values["torch.backends.cudnn.allow_tf32"]
    write_new()


_HOOKS = {
    f"{owner.__name__}.{name}": (owner, name)
    for owner in (modules, optimizer)
    for name in vars(owner)
    if name.startswith("_global_")
}


def _read_hooks() -> Values:
    held = {label: getattr(owner, name) for label, (owner, name) in _HOOKS.items()}
    return {label: dict(value) if isinstance(value, dict) else value for label, value in held.items()}


def _write_hooks(values: Values) -> None:
    for label, (owner, name) in _HOOKS.items():
        held = getattr(owner, name)
        if isinstance(held, dict):  # the same object, which other modules have imported
            held.clear()
            held.update(values[label])
        else:
            setattr(owner, name, values[label])


_TORCH = Path(torch.__file__).parent
_NAMESPACES: dict[str, Any] = {
    "torch": torch,
    "torch.autograd": torch.autograd,
    "torch.fft": torch.fft,
    "torch.linalg": torch.linalg,
    "torch.nn.functional": torch.nn.functional,
    "torch.nn.init": torch.nn.init,
    "torch.Tensor": torch.Tensor,
    "torch.nn.Module": torch.nn.Module,
}


def _read_functions() -> Values:
    return {label: dict(vars(owner)) for label, owner in _NAMESPACES.items()}


def _is_of_torch(function: Any) -> bool:
    """Return whether a function is written in Python in torch itself, some modules of which replace others."""
    code = getattr(function, "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(_TORCH)


def _replaced(before: Values, now: Values) -> Changes:
    """Return the functions that were replaced or, in a class, hidden by a new one; other new names change nothing."""
    found: Changes = {}
    for label, owner in _NAMESPACES.items():
        first, second = before[label], now[label]
        if first == second:  # by identity of the values: fast
            continue
        bases = owner.__mro__[1:] if isinstance(owner, type) else ()
        for name in first.keys() | second.keys():
            new = second.get(name, MISSING)
            inherited = next((vars(base)[name] for base in bases if name in vars(base)), new)
            old = first.get(name, inherited)
            if old is not new and callable(old) and not _is_of_torch(new):
                found[f"{label}.{name}"] = (old, new)
    return found


def _write_functions(values: Values) -> None:
    for label, owner in _NAMESPACES.items():
        for changed in _replaced(values, _read_functions()):
            place, _, name = changed.rpartition(".")
            if place == label and name in values[label]:
                setattr(owner, name, values[label][name])
            elif place == label:
                delattr(owner, name)


_BACKENDS = (
    _attributes("torch.backends.cudnn", torch.backends.cudnn, "enabled", "benchmark", "deterministic")
    | _attributes("torch.backends.mkldnn", torch.backends.mkldnn, "enabled", "deterministic")
    | _attributes("torch.backends.opt_einsum", torch.backends.opt_einsum, "enabled", "strategy")
    | _attributes("torch.backends.quantized", torch.backends.quantized, "engine")
    | _attributes(
        "torch.backends.cuda.matmul",
        torch.backends.cuda.matmul,
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_accumulation",
    )
    | {
        f"{kind} attention": (
            getattr(torch.backends.cuda, f"{kind}_sdp_enabled"),
            getattr(torch.backends.cuda, f"enable_{kind}_sdp"),
        )
        for kind in ("flash", "mem_efficient", "math", "cudnn")
    }
    | {
        "library of linear algebra": (torch._C._get_linalg_preferred_backend, torch._C._set_linalg_preferred_backend),
        "library of matrix products": (torch._C._get_blas_preferred_backend, torch._C._set_blas_preferred_backend),
        "NNPACK": (torch._C._get_nnpack_enabled, torch._C._set_nnpack_enabled),
    }
)

_GROUPS = (
    # Before all others, whose values they could change.
    _one_by_one(
        {
            "default device": (_default_device, torch.set_default_device),
            "modes of torch functions": (_function_modes, _set_function_modes),
            "modes of operators": (lambda: list(dispatch._get_current_dispatch_mode_stack()), _set_dispatch_modes),
            "profiler": (torch._C._autograd._profiler_enabled, _set_profiling),
            "inference mode": (torch.is_inference_mode_enabled, _set_inference_mode),
            "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
            "processor affinity": (_affinity, _set_affinity),
            "niceness": (
                lambda: os.getpriority(os.PRIO_PROCESS, 0),
                lambda value: os.setpriority(os.PRIO_PROCESS, 0, value),
            ),
        }
    ),
    _one_by_one(
        {
            "threads": (torch.get_num_threads, torch.set_num_threads),
            "interop threads": (torch.get_num_interop_threads, torch.set_num_interop_threads),
            "CUDA device": (_cuda_device, lambda value: torch.cuda.set_device(value)),
            "flush of denormal numbers": (_flushes_denormals, torch.set_flush_denormal),
            "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
            "anomaly mode": (torch.is_anomaly_enabled, lambda value: torch.autograd.set_detect_anomaly(value)),
            "anomaly mode's check for NaN": (
                torch.is_anomaly_check_nan_enabled,
                lambda value: torch.autograd.set_detect_anomaly(torch.is_anomaly_enabled(), value),
            ),
            "threads of autograd": (torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled),
            "hooks of saved tensors": (
                lambda: torch._C._autograd._top_saved_tensors_default_hooks(True),
                _set_saved_tensor_hooks,
            ),
            "ban of hooks of saved tensors": (
                torch._C._autograd._saved_tensors_hooks_get_disabled_error_message,
                _set_saved_tensor_hooks_disabled,
            ),
            **_autocast("cpu"),
            **_autocast("cuda"),
            "cache of autocast": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
            "deterministic algorithms": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
            **_attributes("torch.utils.deterministic", torch.utils.deterministic, "fill_uninitialized_memory"),
            **_BACKENDS,
            "garbage collection": (gc.isenabled, lambda value: gc.enable() if value else gc.disable()),
            "thresholds of garbage collection": (gc.get_threshold, lambda value: gc.set_threshold(*value)),
            "interval between threads of Python": (sys.getswitchinterval, sys.setswitchinterval),
            "tracing of Python": (sys.gettrace, sys.settrace),
            "profiling of Python": (sys.getprofile, sys.setprofile),
        }
    ),
    _Group(_read_precisions, _write_precisions),
    _Group(_read_hooks, _write_hooks),
    _Group(_read_functions, _write_functions, _replaced),
)
