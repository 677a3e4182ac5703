"""Whether training takes a layer across a singular matrix, and how near it comes.

The loss grows without bound as det W -> 0, which keeps a gradient flow from crossing, but not a step of finite length.
After every step each layer under test is applied to the identity; a sign of its determinant that differs from the step
before means that the path between the two crossed a singular matrix. Complex layers have no sign and are left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from harness.trials.matrices import matrix_of
from harness.trials.updates import layers_under_test

if TYPE_CHECKING:
    from flows import Glow

LARGEST = 1024  # entries of an event that is watched: a matrix of this size at each step and layer


class Watch:
    """The determinants of a flow's layers under test, step by step.

    Args:
        flow: whose layers are watched; those with D above LARGEST are not.

    Attributes:
        crossings: changes of a determinant's sign between two steps so far, over all layers.
    """

    def __init__(self, flow: Glow) -> None:
        self._layers = [layer for _, layer in layers_under_test(flow) if layer.dim <= LARGEST]
        self._signs = self._matrices_signs()
        self.crossings = 0

    @property
    def layers(self) -> int:
        """How many are watched."""
        return len(self._layers)

    def step(self) -> None:
        """Compare with the step before."""
        signs = self._matrices_signs()
        self.crossings += int((signs != self._signs).sum())
        self._signs = signs

    def smallest_singular_value(self) -> float:
        """Of all watched layers as they are now."""
        return min(
            (float(torch.linalg.svdvals(matrix_of(layer).double())[-1]) for layer in self._layers), default=math.nan
        )

    def state_dict(self) -> dict[str, Any]:
        """The signs after the last step."""
        return {"signs": self._signs, "crossings": self.crossings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._signs, self.crossings = state["signs"], int(state["crossings"])

    def _matrices_signs(self) -> Tensor:
        signs = [torch.linalg.slogdet(matrix).sign for matrix in map(matrix_of, self._layers)]
        return torch.stack(signs) if signs else torch.empty(0)
