"""Code that a layer could replace for all code after it, and threads that it could start: compare and restore them."""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.optim import optimizer

from layers import InvertibleLinear

ADAM = importlib.import_module("torch.optim.adam")  # its package has no attribute of this name

Changes = dict[str, tuple[Any, Any]]
"""Name -> (value before, value now)."""


def same(first: Any, second: Any) -> bool:
    """Return whether two values are one object, or equal and of one type."""
    return first is second or (type(first) is type(second) and bool(first == second))


def change(name: str, before: Any, now: Any) -> Changes:
    """Return the change of a single value."""
    return {} if same(before, now) else {name: (before, now)}


class Setting(NamedTuple):
    """One setting, or several that are read and written together; `changes` compares (name, value before, now)."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    changes: Callable[[str, Any, Any], Changes] = change


def _is_of_torch(function: Any) -> bool:
    """Return whether a function is written in Python in torch itself, some modules of which replace others."""
    code = getattr(function, "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(Path(torch.__file__).parent)


def _functions(owner: Any, label: str = "") -> Setting:
    """Return the functions of a module or class: replacing one, or hiding an inherited one, is a change."""
    label = label or owner.__name__
    bases = owner.__mro__[1:] if isinstance(owner, type) else ()

    def read() -> dict[str, Any]:
        return dict(vars(owner))

    def changes(label: str, before: dict[str, Any], now: dict[str, Any]) -> Changes:
        replaced: Changes = {}
        if before == now:  # by identity of the values: fast
            return replaced
        for name in before.keys() | now.keys():
            new = now.get(name, "missing")
            inherited = next((vars(base)[name] for base in bases if name in vars(base)), new)
            old = before.get(name, inherited)
            if old is not new and callable(old) and not _is_of_torch(new):
                replaced[f"{label}.{name}"] = (old, new)
        return replaced

    def write(values: dict[str, Any]) -> None:
        for changed in changes(label, values, read()):
            name = changed.removeprefix(f"{label}.")
            if name in values:
                setattr(owner, name, values[name])
            else:
                delattr(owner, name)

    return Setting(label, read, write, changes)


BUSY = 0.05  # processor seconds of a thread of a pool, such as that of torch.compile, that does more than wait


def _threads() -> dict[int, tuple[str, float]]:
    """Return native id -> name and processor seconds of Python's threads besides the main one and this one."""
    threads = {}
    for thread in {*threading.enumerate()} - {threading.main_thread(), threading.current_thread()}:
        with contextlib.suppress(OSError, TypeError, AttributeError):  # it has ended, or this system does not tell
            spent = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))  # type: ignore[arg-type]
            target = getattr(thread, "_target", None)
            waits = type(thread) is not threading.Thread or target.__module__ == "concurrent.futures.thread"
            threads[thread.native_id or 0] = thread.name, spent if waits else math.inf
    return threads


def _started(name: str, before: dict[int, tuple[str, float]], now: dict[int, tuple[str, float]]) -> Changes:
    """Return the threads that were started or began to work, without those of a pool that only wait for work."""
    worked = {number for number, (_, spent) in before.items() if spent > BUSY}
    started = [text for number, (text, spent) in now.items() if number not in worked and spent > BUSY]
    return {name: ((), tuple(sorted(started)))} if started else {}


_COMPUTING = re.compile(r"aten/.*/(CPU|CUDA|Autograd\w*|Autocast\w*)")
"""Keys of torch.library for kernels that compute; torch registers others itself, such as those that know shapes."""


def _kernels(_: str, before: set[str], now: set[str]) -> Changes:
    """Return the kernels that Python code has registered for torch's operators, in place of torch's."""
    added = sorted(key for key in now - before if _COMPUTING.fullmatch(key))
    return {f"kernel of {key}": (None, "replaced") for key in added}


def _remove_kernels(before: set[str]) -> None:
    for library in [held for held in gc.get_objects() if type(held) is torch.library.Library]:
        if library._op_impls - before:
            library._destroy()


Classes = dict[type, dict[str, Any]]


def _layer_classes() -> Classes:
    """Return the members of the interface of layers and of every layer class."""
    classes, pending = Classes(), [InvertibleLinear]
    while pending:
        cls = pending.pop()
        classes[cls] = dict(vars(cls))
        pending += cls.__subclasses__()
    return classes


def _replaced_methods(_: str, before: Classes, now: Classes) -> Changes:
    return {
        f"{cls.__qualname__}.{name}": (members.get(name), now[cls].get(name))
        for cls, members in before.items()
        if cls in now and members != now[cls]
        for name in members.keys() | now[cls].keys()
        if members.get(name) is not now[cls].get(name) and callable(members.get(name, now[cls].get(name)))
    }


def _restore_methods(before: Classes) -> None:
    now = _layer_classes()
    for cls, members in before.items():
        for name in (members.keys() | now[cls].keys()) if cls in now else ():
            if name not in members:
                delattr(cls, name)
            elif members[name] is not now[cls].get(name):
                setattr(cls, name, members[name])


REPLACED_CODE: tuple[Setting, ...] = (
    *map(
        _functions,
        (torch, torch.autograd, torch.fft, torch.linalg, torch.nn.functional, torch.nn.init, ADAM),
    ),
    _functions(torch.Tensor, "torch.Tensor"),
    _functions(torch.nn.Module, "torch.nn.Module"),
    _functions(optimizer.Optimizer, "torch.optim.Optimizer"),
    _functions(torch.optim.Adam, "torch.optim.Adam"),
    Setting("methods of layers", _layer_classes, _restore_methods, _replaced_methods),
    Setting("kernels of operators", lambda: set(torch.library._impls), _remove_kernels, _kernels),
    Setting("threads of Python", _threads, lambda threads: None, _started),
)
