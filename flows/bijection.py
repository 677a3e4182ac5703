"""The interface of the parts of a flow."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn


class Bijection(Protocol):
    """An nn.Module that maps events to events bijectively.

    Calling it gives y and log|det dy/dx| of one whole event in nats, of shape (N,), or () if it is equal for every
    event; `inverse` gives x.
    """

    def __call__(self, x: Tensor, /) -> tuple[Tensor, Tensor]:
        """Map x to (y, log|det|)."""
        ...

    def inverse(self, y: Tensor, /) -> Tensor:
        """Map y back to x."""
        ...


class Dense(nn.Module):
    """A bijection whose Jacobian has no structure that a few products could check: an audit needs all of it."""


class Estimated(nn.Module):
    """y = x + g(x) with Lip(g) < 1, whose log-determinant is always an estimate.

    Only the bound on g makes it invertible, so it exposes the quantities behind that bound: the weights that it
    computes with, one operator norm each, and how those norms bound the whole.
    """

    @abstractmethod
    def map(self, x: Tensor) -> Tensor:
        """Return y alone, (N, C, *spatial) -> the same shape."""
        raise NotImplementedError

    @abstractmethod
    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return y, and an estimate of log|det dy/dx| of shape (N,); see `flows.protocol.Flow.forward`."""
        raise NotImplementedError

    @abstractmethod
    def inverse(self, y: Tensor) -> Tensor:
        """Return x, to a stated tolerance."""
        raise NotImplementedError

    @abstractmethod
    def operators(self) -> list[tuple[str, Tensor, tuple[int, ...], float]]:
        """Return (name, weight, input shape, limit) of each convolution of g, as computed: zero-padded "same"."""
        raise NotImplementedError

    @abstractmethod
    def lipschitz(self, norms: list[float]) -> float:
        """Return a bound on Lip(g) from the operator norms of `operators`, in their order."""
        raise NotImplementedError

    @abstractmethod
    def bias(self, lipschitz: float) -> float:
        """Return a bound on the bias of the estimates in eval(), in nats per dimension, for this Lip(g)."""
        raise NotImplementedError
