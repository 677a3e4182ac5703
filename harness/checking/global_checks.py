"""The rules on what a layer does outside torch's tensors: to settings and generators of the process, and to memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.checking.layer_case import LayerCase
from harness.core.global_settings import GlobalSettings
from harness.timing.peak_memory import bytes_outside_torch, is_notable
from layers import InvertibleLinear

BATCH_BYTES = 1 << 20  # half of it is more than what bookkeeping or long printed texts take
LEAST_DIM = 16
HINT = "all later code is affected: leave it, or restore it before returning"


def global_settings(case: LayerCase) -> Iterator[str]:
    """Check that construction and every call leave torch's global settings unchanged and seed no global generator."""
    settings = GlobalSettings()
    try:
        layer = case.build()
    finally:
        settings.restore()  # construction is a separate step below
    steps = {"construction": lambda: case.cls(case.shape, **case.options)} | _calls(layer, case.events())
    for name, step in steps.items():
        try:
            states = [_states_after(step, seed) for seed in (0, 1)]
        finally:
            changes = settings.restore()
        yield from (f"{name} changes {change}; {HINT}" for change in changes)
        for library, first, second in zip(_GENERATORS, *states, strict=True):
            if first == second:  # after a step that draws numbers, the state depends on the seed
                yield f"{name} seeds the global generator of {library}, so that all later draws of the process repeat"


def memory(case: LayerCase) -> Iterator[str]:
    """Check that the calls take their memory from torch, whose allocator measures and limits of memory count."""
    if case.dtype != torch.float32 or case.training or case.dim < LEAST_DIM:
        return  # one way of use is enough, and tiny events make a large batch
    layer = case.build()
    x = case.events(-(-BATCH_BYTES // (case.dtype.itemsize * layer.dim)))
    for name, call in _calls(layer, x).items():
        outside = bytes_outside_torch(call)
        if is_notable(outside, x):
            yield (
                f"{name} takes {outside / (x.numel() * x.element_size()):.1f} times the memory of its input outside "
                "torch's allocator, as NumPy arrays or Python objects do, where no measure counts it: use torch"
            )


def _calls(layer: InvertibleLinear, x: Tensor) -> dict[str, Callable[[], object]]:
    """Return each way to use a layer on events x, by its name."""

    def backward() -> None:
        leaf = x.clone().requires_grad_()
        y, log_det = layer(leaf)
        output = y.sum() + log_det.sum()
        if output.requires_grad:
            output.backward()

    return {
        "forward": lambda: layer(x),
        "backward": backward,
        "inverse": lambda: layer.inverse(x),
        "inverter": lambda: layer.inverter()(x),
        "log_det": layer.log_det,
        "dense": layer.dense,
        "forward under no_grad": torch.no_grad()(lambda: layer(x)),
        "inverse under no_grad": torch.no_grad()(lambda: layer.inverse(x)),
    }


_GENERATORS = ("torch", "NumPy", "Python")


def _states_after(step: Callable[[], object], seed: int) -> tuple[Any, ...]:
    """Return the states of the global generators after a step that begins with `seed`; restore them."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002  the global one is meant
    python_state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        try:
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            random.seed(seed)
            step()
            after: Any = np.random.get_state()  # noqa: NPY002
            return torch.get_rng_state().numpy().tobytes(), (bytes(after[1]), after[2]), random.getstate()
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)
