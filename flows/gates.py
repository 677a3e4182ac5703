"""Gates of affine couplings: log scale as an elementwise function of a network's raw output s.

The scale multiplies the moved half on the way from x to z and divides it in the inverse, so a scale near 0 makes the
inverse explode: below about 1e-7, float32 cannot recover x from z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

GateName = Literal["published", "bounded"]
Gate = Callable[[Tensor], Tensor]


def sigmoid_gate(s: Tensor) -> Tensor:
    """Return log sigmoid(s + 2), scale in (0, 1): Glow (Kingma & Dhariwal 2018), ButterflyFlow's image coupling."""
    return F.logsigmoid(s + 2)


def doubled_gate(s: Tensor) -> Tensor:
    """Return log(2 sigmoid(s)), scale in (0, 2) and 1 at s = 0: Jet (Kolesnikov et al., TMLR 2025)."""
    return F.logsigmoid(s) + math.log(2)


def exponential_gate(s: Tensor) -> Tensor:
    """Return s, scale in (0, inf): ButterflyFlow's sequence coupling."""
    return s


def bounded_gate(s: Tensor) -> Tensor:
    """Return log(0.5 + sigmoid(s)), scale in (0.5, 1.5) and 1 at s = 0, accurate near 0 and finite everywhere.

    A coupling stretches by at most 1.5 and its inverse by at most 2, whatever the network returns: the modified affine
    coupling of Behrmann et al., "Understanding and Mitigating Exploding Inverses in Invertible Neural Networks"
    (AISTATS 2021). 0.5 + sigmoid(s) = 1 + tanh(s / 2) / 2, whose second term is in [-0.5, 0.5], and 0 if s is.
    """
    return torch.log1p(torch.tanh(s / 2) / 2)


COMPILED: tuple[Gate, ...] = (exponential_gate, sigmoid_gate, bounded_gate)
"""The gates of `invertbench::affine_coupling` (csrc/affine/gates.h), in the order of their numbers."""
