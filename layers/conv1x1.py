"""The 1x1 convolution: one c x c matrix at every position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear


class Conv1x1(InvertibleLinear, name="conv1x1"):
    r"""Invertible 1x1 convolution: y[:, p] = W x[:, p] at each of the n positions p; no bias.

    ``parameterisation="dense"`` learns W itself. ``"plu"`` learns its factors,

        W = P (L o strictly-lower + I) (U o strictly-upper + diag(sign * exp(log_s))),

    with the permutation P and the signs fixed at their initial values; L and U are stored whole, so 2c^2 + c
    parameters of which c^2 reach the map. W starts as a random orthogonal matrix (Haar) either way.

    Determinant:
        log|det| = n * sum(log_s) for PLU, n * log|det W| by one LU decomposition, O(c^3), for dense.
    Inverse:
        W^-1 at every position; built by two triangular solves with P^T (PLU) or one general solve (dense).
    Cost:
        c^2 n multiply-adds per event, forward and inverse, after O(c^3) once per call.
    Singular cases:
        PLU has none in exact arithmetic. A dense W can become singular: log|det| = -inf, and the inverse raises
        torch.linalg.LinAlgError.

    Shapes: events (C, L) or (C, H, W), every size.

    Source: Glow (Kingma & Dhariwal, 2018).
    """

    replaces_mixer = True

    lower_mask: Tensor
    upper_mask: Tensor
    permutation: Tensor
    sign: Tensor

    def __init__(self, shape: tuple[int, ...], *, parameterisation: Literal["plu", "dense"] = "plu") -> None:
        super().__init__(shape)
        if parameterisation not in ("plu", "dense"):
            raise ValueError(f"conv1x1: parameterisation = {parameterisation!r} is unknown; use 'plu' or 'dense'")
        self.parameterisation = parameterisation
        dtype = torch.get_default_dtype()
        orthogonal = random_orthogonal(self.channels)
        if parameterisation == "dense":
            self.weight = nn.Parameter(orthogonal.to(dtype))
            return
        permutation, lower, upper = torch.linalg.lu(orthogonal)
        pivots = upper.diagonal()
        strictly_lower = torch.ones_like(lower, dtype=torch.bool).tril(-1)
        self.lower = nn.Parameter((lower * strictly_lower).to(dtype).contiguous())
        self.upper = nn.Parameter((upper * strictly_lower.T).to(dtype).contiguous())
        self.log_s = nn.Parameter(pivots.abs().log().to(dtype))
        self.register_buffer("lower_mask", strictly_lower)
        self.register_buffer("upper_mask", strictly_lower.T.contiguous())
        self.register_buffer("permutation", permutation.argmax(1))  # row i of W is row permutation[i] of LU
        self.register_buffer("sign", pivots.sign().to(dtype))

    def _upper(self) -> Tensor:
        """The upper-triangular factor of PLU, diagonal included."""
        return self.upper * self.upper_mask + torch.diag(self.sign * self.log_s.exp())

    def matrix(self) -> Tensor:
        """W, shape (C, C)."""
        if self.parameterisation == "dense":
            return self.weight
        upper = self._upper()
        # (L + I) U = U + L U saves building the unit diagonal.
        return torch.addmm(upper, self.lower * self.lower_mask, upper)[self.permutation]

    def inverse_matrix(self) -> Tensor:
        """W^-1, shape (C, C)."""
        if self.parameterisation == "dense":
            return torch.linalg.inv(self.weight)
        p_transposed = torch.eye(self.channels, dtype=self.sign.dtype, device=self.sign.device)
        p_transposed = p_transposed[self.permutation].T
        lower = self.lower * self.lower_mask
        y = torch.linalg.solve_triangular(lower, p_transposed, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(self._upper(), y, upper=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply W at every position; see the class for the log-det."""
        self.check_event(x)
        weight = self.matrix()
        log_det = self.log_s.sum() if self.parameterisation == "plu" else torch.linalg.slogdet(weight)[1]
        return mix_channels(weight, x), self.positions * log_det

    def inverse(self, y: Tensor) -> Tensor:
        """Apply W^-1 at every position."""
        self.check_event(y)
        return mix_channels(self.inverse_matrix(), y)

    @torch.no_grad()
    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Build W^-1 once; the callable applies it."""
        weight = self.inverse_matrix()

        @torch.no_grad()
        def invert(y: Tensor) -> Tensor:
            self.check_event(y)
            return mix_channels(weight, y)

        return invert

    @torch.no_grad()
    def dense(self) -> Tensor:
        """W (x) I_n, from the matrices of the definition."""
        if self.parameterisation == "dense":
            weight: Tensor = self.weight
        else:
            one = torch.eye(self.channels, dtype=self.sign.dtype, device=self.sign.device)
            lower = self.lower.tril(-1) + one
            upper = self.upper.triu(1) + one * (self.sign * self.log_s.exp())
            weight = one[self.permutation] @ lower @ upper
        return torch.kron(weight, torch.eye(self.positions, dtype=weight.dtype, device=weight.device))

    def extra_repr(self) -> str:
        """Shape and parameterisation."""
        return f"{super().extra_repr()}, parameterisation={self.parameterisation!r}"


def mix_channels(weight: Tensor, x: Tensor) -> Tensor:
    """Apply one (C', C) matrix to every position of a batch (N, C, *spatial)."""
    # A batched product with a broadcast weight: `weight @ x` would first transpose and copy the batch.
    y = torch.bmm(weight.expand(x.shape[0], -1, -1), x.flatten(2))
    return y.unflatten(2, x.shape[2:])


def random_orthogonal(size: int) -> Tensor:
    """An orthogonal matrix drawn uniformly (Haar) with torch's global generator, float64."""
    q, r = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))
    # Without the signs the draw would follow LAPACK's convention; its result is column-major.
    return (q * r.diagonal().sign()).contiguous()
