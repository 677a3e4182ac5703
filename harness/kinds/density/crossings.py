"""A callback that records whether training takes a layer across a singular matrix, and how close it comes.

The loss grows without bound as det W -> 0, which keeps a gradient flow from crossing, but not a step of finite length.
A determinant whose sign differs from that of the previous step was zero somewhere on the straight line in between.
The determinants are, for a butterfly, those of its 2x2 matrices; for a 1x1 convolution, that of the matrix of one
position; for any other layer, that of the whole matrix, so that an even number of crossings in one step is missed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from harness.core.records import finite
from harness.training.training import Callback, Curves
from harness.training.updates import layers_under_test
from layers import LAYERS, InvertibleLinear
from layers.base import push_identity

if TYPE_CHECKING:
    from flows import Flow
    from layers.butterfly import Butterfly
    from layers.conv1x1 import Conv1x1

LARGEST = 1024  # largest D of a watched layer: a matrix of this size per step and layer


class Crossings(Callback):
    """Enter two curves: "crossings", sign changes between successive steps so far, and "smallest_singular_value"."""

    def __init__(self) -> None:
        self.crossings = 0

    def start(self, flow: Flow) -> None:
        """Take the signs before the first step."""
        self._layers = [layer for _, layer in layers_under_test(flow) if layer.dim <= LARGEST]
        self._signs = self._signs_now()

    def on_step(self) -> None:
        """Compare the signs with those of the previous step."""
        signs = self._signs_now()
        self.crossings += int((signs != self._signs).sum())
        self._signs = signs

    def on_validation(self, flow: Flow, value: float, curves: Curves) -> float:
        """See `Callback.on_validation`."""
        curves.setdefault("crossings", []).append(self.crossings)
        curves.setdefault("smallest_singular_value", []).append(finite(self.smallest_singular_value()))
        return value

    def smallest_singular_value(self) -> float:
        """Return the smallest singular value of the current matrices W of all watched layers."""
        return min(
            (float(torch.linalg.svdvals(push_identity(layer).double())[-1]) for layer in self._layers), default=math.nan
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the signs after the last step."""
        return {"signs": self._signs, "crossings": self.crossings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the signs."""
        self._signs, self.crossings = state["signs"].to(self._signs), int(state["crossings"])

    def _signs_now(self) -> Tensor:
        signs = [_determinants(layer).sign() for layer in self._layers]
        return torch.cat(signs) if signs else torch.empty(0)


@torch.no_grad()
def _determinants(layer: InvertibleLinear) -> Tensor:
    """Return the determinants that must not vanish, or their signs; shape (number,)."""
    # By name: a trial that watches nothing must not depend on the files of these layers.
    if isinstance(layer, LAYERS["butterfly"]):
        butterfly = cast("Butterfly", layer)
        if butterfly.block_size == 1 and not butterfly.mixed:
            (a, b), (c, d) = butterfly.weight
            return a * d - b * c
    if isinstance(layer, LAYERS["conv1x1"]):
        matrix = cast("Conv1x1", layer).matrix()
    else:
        matrix = push_identity(layer)
    return torch.linalg.slogdet(matrix).sign[None]
