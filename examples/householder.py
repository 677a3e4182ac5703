"""An example of a third-party layer in one file: Householder reflections and a scale per channel.

Try it with ``python -m harness check-layer ./examples/householder.py:Householder``, and name it in a suite the same
way. Give it a name (``class Householder(InvertibleLinear, name="householder")``) and move it to layers/ to have it
among the registered ones.
"""

import torch
from torch import Tensor, nn

from layers import InvertibleLinear


class Householder(InvertibleLinear):
    """y_p = H_1 ... H_k diag(exp(s)) x_p at each of the n positions p, H_i = I - 2 v_i v_i^T / |v_i|^2.

    A reflection is its own inverse and has determinant -1, so log|det W| = n * sum(s), for all n positions, and
    x_p = diag(exp(-s)) H_k ... H_1 y_p. Cost O(k C n) both ways. Singular only where a v_i is zero.

    Args:
        shape: (C, L) or (C, H, W).
        reflections: k, the number of reflections.
    """

    def __init__(self, shape: tuple[int, ...], reflections: int = 2) -> None:
        super().__init__(shape)
        if reflections < 1:
            raise ValueError(f"reflections = {reflections}: at least 1 is needed")
        self.directions = nn.Parameter(torch.randn(reflections, self.channels))
        self.log_scale = nn.Parameter(torch.zeros(self.channels))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scale, then reflect; the log-det counts every position."""
        y = x.flatten(2) * self.log_scale.exp()[:, None]
        for v in reversed(self.unit_directions()):
            y = reflect(y, v)
        return y.reshape(x.shape), self.positions * self.log_scale.sum()

    def inverse(self, y: Tensor) -> Tensor:
        """Undo the reflections in reverse order, then the scale."""
        x = y.flatten(2)
        for v in self.unit_directions():
            x = reflect(x, v)
        return (x * (-self.log_scale).exp()[:, None]).reshape(y.shape)

    def unit_directions(self) -> tuple[Tensor, ...]:
        """Return the vectors v_i / |v_i|, each (C,)."""
        return (self.directions / self.directions.norm(dim=1, keepdim=True)).unbind()


def reflect(x: Tensor, v: Tensor) -> Tensor:
    """Return (I - 2 v v^T) x over the channels of x (N, C, n), for a unit vector v (C,)."""
    return x - 2 * v[:, None] * torch.einsum("c, ncp -> np", v, x)[:, None]
