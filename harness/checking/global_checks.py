"""The rule that a layer changes nothing outside itself: global settings stay unchanged, and no generator is seeded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from harness.checking.events import Begins, Collector
from harness.checking.layer_case import LayerCase
from harness.core.global_settings import GlobalSettings
from layers import InvertibleLinear

HINT = "all later code is affected: leave it, or restore it before returning"


def global_settings(case: LayerCase) -> Iterator[str]:
    """Check that construction and every call leave torch's global settings unchanged and seed no global generator."""
    settings = GlobalSettings()
    try:
        layer = case.build()
    finally:
        settings.restore()  # construction is a step of its own below
    steps = {"construction": lambda: case.cls(case.shape, **case.options)} | _calls(layer, case)
    for name, step in steps.items():
        try:
            states = [_states_after(step, seed) for seed in (0, 1)]
        finally:
            changes = settings.restore()
        yield from (f"{name} changes {change}; {HINT}" for change in changes)
        for library, first, second in zip(_GENERATORS, *states, strict=True):
            if first == second:
                yield f"{name} seeds the global generator of {library}, so that all later draws of the process repeat"


def _calls(layer: InvertibleLinear, case: LayerCase) -> dict[str, Callable[[], object]]:
    x = case.events()

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
    """Return the states of the global generators after a step that begins with `seed`; restore them.

    A step that draws numbers ends in a state that depends on the seed, one that seeds a generator does not.
    """
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002  the global one is meant
    with torch.random.fork_rng(devices=[]):
        try:
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            random.seed(seed)
            step()
            after = np.random.get_state()  # noqa: NPY002
            return torch.get_rng_state().numpy().tobytes(), (bytes(after[1]), after[2]), random.getstate()
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)


class SettingsWatch:
    """Find changes of global settings by any part of a check, from the import of the layer on, and undo them.

    Args:
        collector: receives each change once, as a fault of the rule `global-settings`.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._settings = GlobalSettings()
        self._reported: set[str] = set()

    def look(self, place: str) -> None:
        """Report and undo what has changed since construction or the last call, in the part of the check at `place`."""
        changes = [change for change in self._settings.restore() if change not in self._reported]
        if changes:
            self._reported.update(changes)
            self._collector.take(Begins(rule="global-settings", place=place))
            self._collector.answer(f"{change}; {HINT}" for change in changes)
