"""What a flow asks of each of its parts."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn


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


class Dense(nn.Module):
    """A bijection whose Jacobian has no form that a few products could check: an audit needs all of it."""


class Estimated(nn.Module):
    """y = x + g(x) with Lip(g) < 1, whose log-determinant is only ever an estimate.

    It is invertible by the bound on g alone, and so it says what that bound rests on: the weights that it computes
    with, one operator norm each, and how those norms bound the whole.
    """

    @abstractmethod
    def map(self, x: Tensor) -> Tensor:
        """y alone, (N, C, *spatial) -> the same shape."""
        raise NotImplementedError

    @abstractmethod
    def forward(self, x: Tensor, chance: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """y, and an estimate of log|det dy/dx| of shape (N,); see `flows.protocol.Flow.forward` for `chance`."""
        raise NotImplementedError

    @abstractmethod
    def inverse(self, y: Tensor) -> Tensor:
        """x, to a stated tolerance."""
        raise NotImplementedError

    @abstractmethod
    def operators(self) -> list[tuple[str, Tensor, tuple[int, ...], float]]:
        """(name, weight, input shape, limit) of each convolution of g, as it computes: zero-padded "same"."""
        raise NotImplementedError

    @abstractmethod
    def lipschitz(self, norms: list[float]) -> float:
        """A bound on Lip(g) from the operator norms of `operators`, in their order."""
        raise NotImplementedError

    @abstractmethod
    def bias(self, lipschitz: float) -> float:
        """A bound on what the estimates in eval() are off in the mean, in nats per dimension, where Lip(g) is known."""
        raise NotImplementedError
