from typing import Literal

import torch
from torch import nn

from layers.base import InvertibleLinear, UnsupportedShape


class Timewise(InvertibleLinear, name="timewise"):
    """y = exp(s) x with a number s for each channel of a sequence; no bias.

    Family: scales
    Source: this file
    Cost:
        forward: D multiplications
        inverse: D multiplications
        log-det: C additions
    Shapes: (C, L)
    """

    def __init__(self, shape: tuple[int, ...], start: Literal["identity", "halves"] = "identity") -> None:
        super().__init__(shape)
        if len(shape) == 3:
            raise UnsupportedShape(f"timewise: shape {shape} has two spatial axes; use (channels, length)")
        if start not in ("identity", "halves"):
            raise ValueError(f"timewise: start {start!r} is unknown; give identity or halves")
        self.log_scale = nn.Parameter(torch.full((shape[0], 1), -0.7 if start == "halves" else 0.0))

    def forward(self, x):
        return x * self.log_scale.exp(), self.positions * self.log_scale.sum()

    def inverse(self, y):
        return y * (-self.log_scale).exp()
