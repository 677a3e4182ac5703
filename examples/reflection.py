"""A plain module that check-layer and suites take unchanged: no base class of this project.

python -m harness check-layer ./examples/reflection.py:Reflection --set features=D
"""

import torch
from torch import nn


class Reflection(nn.Module):
    """y = exp(s) (x - 2 v v^T x) on vectors of D entries, with |v| = 1: a Householder reflection, then a scale.

    log|det| = sum(s) for each vector.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.randn(features))
        self.log_scale = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        """Map (N, D) to (N, D); return y and log|det| of each event, shape (N,)."""
        return self.log_scale.exp() * self.reflect(x), self.log_scale.sum().expand(len(x))

    def inverse(self, y):
        """Map back; a reflection is its own inverse."""
        return self.reflect((-self.log_scale).exp() * y)

    def reflect(self, x):
        """Return x - 2 v v^T x of every row."""
        v = self.direction / self.direction.norm()
        return x - 2 * (x @ v)[..., None] * v
