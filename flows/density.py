"""The interface of a density that is no flow: a reference beside flows, for the question whether one is needed."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from flows.protocol import Flow, Part


class Density(Flow):
    """log p(x) and samples, without a map to z: it has no inverse and no log-determinant.

    It is fitted at once to the training split, where a flow is trained by steps, and chooses by the validation split.
    """

    splits = False
    remark: ClassVar[str | None] = "no flow: a density without a map, so that no inverse and no log-det can be audited"

    @abstractmethod
    def fit(self, train: Tensor, validation: Tensor) -> None:
        """Fit the density to prepared events, (N, *shape) each."""

    @abstractmethod
    def log_prob(self, x: Tensor, generator: object = None) -> Tensor:
        """Return log p(x) of shape (N,), in nats."""

    def parts(self) -> list[list[Part]]:
        """Return one level without bijections."""
        return [[]]

    def forward(self, x: Tensor, generator: object = None) -> tuple[Tensor, Tensor]:
        """Raise TypeError."""
        raise TypeError(f"{type(self).__name__} is a density without a map to z; use log_prob")

    def inverse(self, z: Tensor) -> Tensor:
        """Raise TypeError."""
        raise TypeError(f"{type(self).__name__} is a density without a map from z; use sample")

    def terms(self, x: Tensor, generator: object = None) -> tuple[Tensor, Tensor]:
        """Return log p(x) and 0, each of shape (N,): all of it counts as the prior's."""
        log_prob = self.log_prob(x)
        return log_prob, log_prob.new_zeros(len(x))
