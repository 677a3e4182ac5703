"""The 1x1 convolution: one c x c matrix at every position."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_choice
from layers.linalg.householder import householder_vectors, product_of_reflections, reflected
from layers.linalg.mixing import as_events, as_rows, has_few_positions, mix_channels
from layers.linalg.plu import log_abs_det, plu_matrix

Initialisation = Literal["orthogonal", "permutation"]


class Conv1x1(InvertibleLinear, name="conv1x1"):
    r"""Invertible 1x1 convolution: y[:, p] = W x[:, p] at each of the n positions p; no bias.

    ``parameterisation="dense"`` learns W itself. ``"plu"`` learns its factors,

        W = P (L o strictly-lower + I) (U o strictly-upper + diag(sign * exp(log_s))),

    with the permutation P and the signs fixed at their initial values; L and U are stored whole, so 2c^2 + c
    parameters of which c^2 reach the map. ``"qr"`` learns

        W = H_1 ... H_c (R o strictly-upper + diag(s)),    H_i = I - 2 v_i v_i^T / (v_i^T v_i),

    the reflections' vectors v_i, R (stored whole) and s itself, which may change its sign: 2c^2 + c parameters of
    which c^2 + c (c + 1) / 2 reach the map, although only the direction of a v_i counts. A v_i = 0 reflects nothing.
    W starts as a random orthogonal matrix (Haar), or as a random permutation of the channels, which leaves each of them
    whole; both are the same for the same draw, in every parameterisation.

    Determinant:
        log|det| = n * sum(log_s) for PLU, n * sum(log|s|) for QR, n * log|det W| by one LU decomposition, O(c^3),
        for dense.
    Inverse:
        W^-1 at every position; built by two triangular solves with P^T (PLU), one with the transposed product
        of the reflections (QR), or one general solve (dense).
    Family: 1x1 convolutions
    Cost:
        forward: c^2 n multiply-adds per event, after O(c^3) once per call; PLU of few rows 2 c^2 n per event
        inverse: the same; PLU of few rows c^2 n per event
        log-det: c additions (PLU and QR), O(c^3) (dense)
    Singular cases:
        PLU has none in exact arithmetic. An s_i = 0 makes QR singular: log|det| = -inf, and the inverse is not
        finite. A dense W can become singular: log|det| = -inf, and the inverse raises torch.linalg.LinAlgError.

    Shapes: every (C, L) and (C, H, W)
    Source: Glow (Kingma and Dhariwal, NeurIPS 2018); QR: Emerging convolutions (Hoogeboom et al., ICML 2019)

    Args:
        parameterisation: "plu", "qr" or "dense".
        initialisation: of W, "orthogonal" or "permutation".
    """

    replaces_mixer = True

    lower_mask: Tensor
    upper_mask: Tensor
    permutation: Tensor
    sign: Tensor

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        parameterisation: Literal["plu", "qr", "dense"] = "plu",
        initialisation: Initialisation = "orthogonal",
    ) -> None:
        super().__init__(shape)
        check_choice("conv1x1", "parameterisation", parameterisation, ("plu", "qr", "dense"))
        self.parameterisation = parameterisation
        dtype = torch.get_default_dtype()
        orthogonal = initial_matrix("conv1x1", self.channels, initialisation)
        if parameterisation == "dense":
            self.weight = nn.Parameter(orthogonal.to(dtype))
            return
        strictly_upper = torch.ones_like(orthogonal, dtype=torch.bool).triu(1)
        self.register_buffer("upper_mask", strictly_upper)
        if parameterisation == "qr":
            vectors, signs = householder_vectors(orthogonal)
            self.reflections = nn.Parameter(vectors.to(dtype))
            self.upper = nn.Parameter(torch.zeros_like(orthogonal, dtype=dtype))
            self.s = nn.Parameter(signs.to(dtype))
            return
        permutation, lower, upper = torch.linalg.lu(orthogonal)
        pivots = upper.diagonal()
        self.lower = nn.Parameter((lower * strictly_upper.T).to(dtype).contiguous())
        self.upper = nn.Parameter((upper * strictly_upper).to(dtype).contiguous())
        self.log_s = nn.Parameter(pivots.abs().log().to(dtype))
        self.register_buffer("lower_mask", strictly_upper.T.contiguous())
        self.register_buffer("permutation", permutation.argmax(1))  # row i of W is row permutation[i] of LU
        self.register_buffer("sign", pivots.sign().to(dtype))

    def _upper(self) -> Tensor:
        """Return the upper-triangular factor of PLU or QR, diagonal included."""
        diagonal = self.s if self.parameterisation == "qr" else self.sign * self.log_s.exp()
        return self.upper.triu(1) + torch.diag(diagonal)

    def _takes_factors(self, x: Tensor) -> bool:
        """Return whether to apply L and U separately to events, instead of forming W or its inverse, which is O(c^3).

        On a CPU the two took equal times, within 10 %, at as many rows as channels, with 64, 256 and 1024 channels.
        """
        few = has_few_positions(x) and x.shape[0] * self.positions <= self.channels
        return few and self.parameterisation == "plu"

    def matrix(self) -> Tensor:
        """Return W, shape (C, C)."""
        return self._matrix_and_log_det()[0]

    def _matrix_and_log_det(self) -> tuple[Tensor, Tensor]:
        """Return W, shape (C, C), and n log|det W|."""
        if self.parameterisation == "plu":
            return plu_matrix(self.lower, self.upper, self.log_s, self.sign, self.permutation, self.positions)
        if self.parameterisation == "qr":
            return product_of_reflections(self.reflections) @ self._upper(), self.log_det()
        return self.weight, self.log_det()

    def inverse_matrix(self) -> Tensor:
        """Return W^-1, shape (C, C)."""
        if self.parameterisation == "dense":
            return torch.linalg.inv(self.weight)
        if self.parameterisation == "qr":
            return torch.linalg.solve_triangular(self._upper(), product_of_reflections(self.reflections).T, upper=True)
        p_transposed = torch.eye(self.channels, dtype=self.sign.dtype, device=self.sign.device)[self.permutation].T
        y = torch.linalg.solve_triangular(self.lower.tril(-1), p_transposed, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(self._upper(), y, upper=True)

    def log_det(self) -> Tensor:
        """Return n log|det W|; see the class."""
        if self.parameterisation == "plu":
            return self.positions * self.log_s.sum()
        if self.parameterisation == "qr":
            return self.positions * self.s.abs().log().sum()
        return log_abs_det(self.weight, self.positions)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply W at every position; see the class for the log-det."""
        if not self._takes_factors(x):
            weight, log_det = self._matrix_and_log_det()
            return mix_channels(weight, x), log_det
        rows = F.linear(as_rows(x), self._upper())
        rows = (rows + F.linear(rows, self.lower.tril(-1))).index_select(1, self.permutation)
        return as_events(rows, x), self.log_det()

    def inverse(self, y: Tensor) -> Tensor:
        """Solve the triangular systems of few rows, or apply W^-1 at every position; see the class."""
        if not self._takes_factors(y):
            return mix_channels(self.inverse_matrix(), y)
        rows = as_rows(y).index_select(1, self.permutation.argsort())
        solve = partial(torch.linalg.solve_triangular, left=False)
        rows = solve(self.lower.tril(-1).T, rows, upper=True, unitriangular=True)
        return as_events(solve(self._upper().T, rows, upper=False), y)

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Build W^-1 once; the callable applies it at every position."""
        return partial(mix_channels, self.inverse_matrix())

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W (x) I_n, from the matrices of the definition."""
        if self.parameterisation == "dense":
            weight: Tensor = self.weight
        elif self.parameterisation == "qr":
            weight = reflected(self.reflections, self.upper.triu(1) + torch.diag(self.s))
        else:
            one = torch.eye(self.channels, dtype=self.sign.dtype, device=self.sign.device)
            upper = self.upper.triu(1) + one * (self.sign * self.log_s.exp())
            weight = one[self.permutation] @ (self.lower.tril(-1) + one) @ upper
        return torch.kron(weight, torch.eye(self.positions, dtype=weight.dtype, device=weight.device))


def initial_matrix(layer: str, size: int, initialisation: Initialisation) -> Tensor:
    """Return the orthogonal matrix with which a layer starts, drawn with torch's global generator, float64."""
    check_choice(layer, "initialisation", initialisation, get_args(Initialisation))
    if initialisation == "permutation":
        return torch.eye(size, dtype=torch.float64)[torch.randperm(size)]
    return random_orthogonal(size)


def random_orthogonal(size: int) -> Tensor:
    """Return an orthogonal matrix drawn uniformly (Haar) with torch's global generator, float64."""
    q, r = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))
    # Without the signs the draw would follow LAPACK's convention; its result is column-major.
    return (q * r.diagonal().sign()).contiguous()
