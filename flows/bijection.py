"""What the backbone asks of each of its parts."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Bijection(Protocol):
    """An nn.Module that maps events to events, one to one.

    Calling it gives y and log|det dy/dx| of one whole event in nats, of shape (N,), or () where it is the same
    for every event; `inverse` gives x back.
    """

    def __call__(self, x: Tensor, /) -> tuple[Tensor, Tensor]:
        """Map x to (y, log|det|)."""
        ...

    def inverse(self, y: Tensor, /) -> Tensor:
        """Map y back to x."""
        ...
