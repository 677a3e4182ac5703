"""A permutation that is learned: relaxed to a doubly stochastic matrix in training, a permutation at evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_choice, check_whole
from layers.linalg.mixing import mix_channels
from layers.linalg.plu import log_abs_det

CERTAINTY = 0.5
"""The diagonal entries of the initial matrix."""


class Sinkhorn(InvertibleLinear, name="sinkhorn"):
    r"""A learned permutation of m places; relaxed while training, hard in `eval()`; no bias.

    In training the map is y = S x, where S is the result of `iterations` rounds of normalising the columns and the rows
    of exp(A / temperature), for a free A of (m, m): almost doubly stochastic. In `eval()` it is y = x[p], where p
    takes the largest entry of S, then the largest of the other rows and columns, and so on; wherever every row of S
    has an entry above 1/2, these are p, and the best assignment.

    **Likelihoods.** S and p are two maps, and each has its own log-determinant: log|det S|, by LU decomposition, in
    training, and 0 in `eval()`. So either mode reports a likelihood of the model that it applies, and never one mode's
    map with the other's determinant; `hardens` makes every check run in both. Validation, test, audit and samples are
    taken in `eval()`: reported values are those of the permutation. The training loss
    is the relaxed model's; it need not bound the other. The determinant of a row-stochastic matrix is at most 1, and
    of a doubly stochastic one is 1 only for a permutation, so the likelihood itself drives S towards one.

    What it cannot do: between two permutations, of which one is odd and the other even, every path of S crosses a
    singular matrix, where log|det S| = -inf. Gradients do not cross, so which parity is learned is a matter of the
    start (an identity here, with `CERTAINTY` on the diagonal) and of large steps.

    Determinant: relaxed (D / m) log|det S|; hard 0.
    Inverse: relaxed a solve with S, hard the inverse permutation.
    Parameters: m^2.
    Singular cases: relaxed, where S is: equal rows, such as A = 0. log|det| = -inf, and the inverse is not finite.

    Family: permutations
    Cost:
        forward: relaxed D m multiply-adds after O(iterations m^2); hard D moves after at most m rounds of O(m^2), few
        if S is near a permutation, each of which waits for the device
        inverse: the same, and O(m^3) relaxed
        log-det: O(m^3) relaxed; none hard, it is 0
    Shapes: every (C, L) and (C, H, W); memory for m x m numbers, so with more than some thousand entries permute
    "positions" or "channels"
    Source: Gumbel-Sinkhorn networks (Mena et al., ICLR 2018), without the noise; Sinkhorn (1964)

    Args:
        over: the places: all m = D "entries", the m = c "channels" at every position alike, or the m = n "positions"
            of every channel alike.
        iterations: rounds of normalisation.
        temperature: divides A. The smaller, the further a training step moves S.
    """

    hardens = True

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        over: Literal["entries", "channels", "positions"] = "entries",
        iterations: int = 10,
        temperature: float = 0.1,
    ) -> None:
        super().__init__(shape)
        sizes = {"entries": self.dim, "channels": self.channels, "positions": self.positions}
        check_choice("sinkhorn", "over", over, tuple(sizes))
        check_whole("sinkhorn", "iterations", iterations)
        if not temperature > 0 or not math.isfinite(temperature):
            raise ValueError(f"sinkhorn: temperature = {temperature!r} is not allowed; use a number above 0")
        self.over, self.iterations, self.temperature = over, iterations, temperature
        self.places = sizes[over]
        start = temperature * math.log(CERTAINTY / (1 - CERTAINTY) * max(self.places - 1, 1))
        self.logits = nn.Parameter(start * torch.eye(self.places))

    def relaxed(self) -> Tensor:
        """Return S, (m, m); every row sums to 1."""
        logits = self.logits / self.temperature
        for _ in range(self.iterations):
            logits = logits.log_softmax(0).log_softmax(1)
        return logits.exp()

    @torch.no_grad()
    def permutation(self) -> Tensor:
        """Return p, (m,): place i of the output is place p[i] of the input."""
        left = self.relaxed()
        chosen = torch.full((self.places,), -1, device=left.device)
        place = torch.arange(self.places, device=left.device)
        # An entry that is the largest of its row and of its column would be taken before any other of them. There is
        # one in every round, equal entries or not: of the largest, the first row's in the first column that has one.
        while bool((chosen < 0).any()):
            column = left.argmax(1)
            taken = (left.argmax(0)[column] == place) & (chosen < 0)
            chosen = torch.where(taken, column, chosen)
            left[taken] = -1
            left[:, column[taken]] = -1
        return chosen

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply S with its log-det in training, p with log-det 0 in eval()."""
        if not self.training:
            return self._moved(x, self.permutation()), x.new_zeros(())
        matrix = self.relaxed()
        return self._mixed(x, matrix), self._log_det(matrix)

    def log_det(self) -> Tensor:
        """Return log|det| of S in training, 0 in eval()."""
        return self._log_det(self.relaxed()) if self.training else self.logits.new_zeros(())

    def _log_det(self, matrix: Tensor) -> Tensor:
        return log_abs_det(matrix, self.dim // self.places)

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Invert S once in training, p in eval()."""
        if not self.training:
            return partial(self._moved, order=self.permutation().argsort())
        return partial(self._mixed, matrix=torch.linalg.inv_ex(self.relaxed())[0])

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the Kronecker product of S, or of the matrix of p, with the identity on what it does not permute."""
        one = torch.eye(self.places, dtype=self.logits.dtype, device=self.logits.device)
        matrix = self.relaxed() if self.training else one[self.permutation()]
        rest = torch.eye(self.dim // self.places, dtype=one.dtype, device=one.device)
        return torch.kron(matrix, rest) if self.over == "channels" else torch.kron(rest, matrix)

    def _mixed(self, x: Tensor, matrix: Tensor) -> Tensor:
        if self.over == "channels":
            return mix_channels(matrix, x)
        return (x.reshape(-1, self.places) @ matrix.T).view(x.shape)

    def _moved(self, x: Tensor, order: Tensor) -> Tensor:
        if self.over == "channels":
            return x[:, order]
        return x.reshape(-1, self.places)[:, order].view(x.shape)
