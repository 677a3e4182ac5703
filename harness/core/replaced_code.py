"""Code that a layer could replace for all code after it, and threads that it could start: compare and restore them."""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
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


_OWNERS: dict[str, Any] = {
    **{module.__name__: module for module in (torch, torch.autograd, torch.fft, torch.linalg)},
    **{module.__name__: module for module in (torch.nn.functional, torch.nn.init, ADAM)},
    "torch.Tensor": torch.Tensor,
    "torch.nn.Module": torch.nn.Module,
    "torch.optim.Optimizer": optimizer.Optimizer,
    "torch.optim.Adam": torch.optim.Adam,
}
Members = dict[Any, dict[str, Any]]
"""Module or class -> its members."""


def _members() -> Members:
    """Return the members of torch's modules and classes, of the interface of layers and of every layer class."""
    owners, pending = list(_OWNERS.values()), [InvertibleLinear]
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


def _changed_members(_: str, before: Members, now: Members) -> Changes:
    labels = {owner: label for label, owner in _OWNERS.items()}
    return {
        f"{labels.get(owner) or owner.__qualname__}.{name}": (old, new)
        for owner, name, old, new in _replaced(before, now)
    }


def _restore_members(before: Members) -> None:
    for owner, name, *_ in list(_replaced(before, _members())):
        if name in before[owner]:
            setattr(owner, name, before[owner][name])
        else:
            delattr(owner, name)


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


REPLACED_CODE: tuple[Setting, ...] = (
    Setting("functions and methods", _members, _restore_members, _changed_members),
    Setting("kernels of operators", lambda: set(torch.library._impls), _remove_kernels, _kernels),
    Setting("threads of Python", _threads, lambda threads: None, _started),
)
