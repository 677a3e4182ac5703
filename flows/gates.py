"""Gates of affine couplings: elementwise maps from a network's raw output s to a positive scale.

The scale multiplies the moved half on the way from x to z and divides it in the inverse, so a scale near 0 makes the
inverse explode: below about 1e-7, float32 cannot recover x from z.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

GateName = Literal["published", "bounded"]


class Gate(ABC):
    """A positive scale as a function of s, of the same shape as s."""

    @abstractmethod
    def log_scale(self, s: Tensor) -> Tensor:
        """Return the logarithm of the scale."""
        raise NotImplementedError

    def scale(self, s: Tensor) -> Tensor:
        """Return the scale."""
        return self.log_scale(s).exp()


class SigmoidGate(Gate):
    """scale = sigmoid(s + 2), in (0, 1): of Glow (Kingma & Dhariwal 2018) and of ButterflyFlow's image coupling."""

    def log_scale(self, s: Tensor) -> Tensor:
        """Return log sigmoid(s + 2)."""
        return F.logsigmoid(s + 2)

    def scale(self, s: Tensor) -> Tensor:
        """Return sigmoid(s + 2), computed directly."""
        return torch.sigmoid(s + 2)


class ExponentialGate(Gate):
    """scale = exp(s), in (0, inf): of ButterflyFlow's sequence coupling."""

    def log_scale(self, s: Tensor) -> Tensor:
        """Return s."""
        return s


class BoundedGate(Gate):
    """scale = 0.5 + sigmoid(s), in (0.5, 1.5) and 1 at s = 0.

    A coupling stretches by at most 1.5 and its inverse by at most 2, whatever the network returns: the modified affine
    coupling of Behrmann et al., "Understanding and Mitigating Exploding Inverses in Invertible Neural Networks"
    (AISTATS 2021).
    """

    def log_scale(self, s: Tensor) -> Tensor:
        """Return log(0.5 + sigmoid(s)), accurate near s = 0 and finite everywhere.

        0.5 + sigmoid(s) = 1 + tanh(s / 2) / 2: the argument of log1p is in [-0.5, 0.5], and 0 if s is.
        """
        return torch.log1p(torch.tanh(s / 2) / 2)
