"""The orthogonal 1x1 convolution: one orthogonal c x c matrix at every position."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_choice
from layers.conv1x1 import Initialisation, initial_matrix
from layers.linalg.householder import householder_vectors, product_of_reflections, reflected
from layers.linalg.mixing import mix_channels


class Orthogonal(InvertibleLinear, name="orthogonal"):
    r"""Orthogonal 1x1 convolution: y[:, p] = W x[:, p] at each of the n positions p, W^T W = I; no bias.

    W starts as a random orthogonal matrix W_0 (Haar), or as a random permutation of the channels, which leaves each of
    them whole; both are the same for the same draw, in every parameterisation:

        householder    W = H_1 ... H_c diag(signs),         H_i = I - 2 v_i v_i^T / (v_i^T v_i),
        cayley         W = W_0 (I - A) (I + A)^-1,          A = lower - lower^T,
        exponential    W = W_0 exp(A),                      A = lower - lower^T.

    The signs and W_0 are fixed. The reflections reach every matrix of W_0's determinant, and so does the exponential;
    Cayley's map leaves out those W_0^T W with an eigenvalue -1.

    Determinant: log|det| = 0.
    Inverse: W^T at every position.
    Parameters: c^2; of the two that have a skew-symmetric A, c (c - 1) / 2 reach the map.
    Singular cases: none. A v_i = 0 reflects nothing.

    Family: 1x1 convolutions
    Cost:
        forward: c^2 n multiply-adds, after O(c^3) once per call for W
        inverse: the same
        log-det: none, it is 0
    Shapes: every (C, L) and (C, H, W)
    Source: Householder: Tomczak and Welling (2016); Cayley and exponential: Golinski, Lezcano-Casado and Rainforth
    (2019), Lezcano-Casado and Martinez-Rubio (ICML 2019)

    Args:
        parameterisation: "householder", "cayley" or "exponential".
        initialisation: of W, "orthogonal" or "permutation".
    """

    replaces_mixer = True

    lower_mask: Tensor
    signs: Tensor
    start: Tensor

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        parameterisation: Literal["householder", "cayley", "exponential"] = "householder",
        initialisation: Initialisation = "orthogonal",
    ) -> None:
        super().__init__(shape)
        check_choice("orthogonal", "parameterisation", parameterisation, ("householder", "cayley", "exponential"))
        self.parameterisation = parameterisation
        dtype = torch.get_default_dtype()
        vectors, signs = householder_vectors(initial_matrix("orthogonal", self.channels, initialisation))
        self.register_buffer("signs", signs.to(dtype))
        if parameterisation == "householder":
            self.reflections = nn.Parameter(vectors.to(dtype))
            return
        # W_0 as reflections too: rounded to float32 and taken up in float64, a matrix would not be orthogonal.
        self.register_buffer("start", vectors.to(dtype))
        self.lower = nn.Parameter(torch.zeros_like(vectors, dtype=dtype))
        self.register_buffer("lower_mask", torch.ones_like(vectors, dtype=torch.bool).tril(-1))

    def matrix(self) -> Tensor:
        """Return W, shape (C, C)."""
        if self.parameterisation == "householder":
            return product_of_reflections(self.reflections) * self.signs
        start = product_of_reflections(self.start) * self.signs
        lower = self.lower * self.lower_mask
        skew = lower - lower.T
        if self.parameterisation == "exponential":
            return start @ torch.linalg.matrix_exp(skew)
        one = torch.eye(self.channels, dtype=skew.dtype, device=skew.device)
        # The two factors commute, and I + A is never singular.
        return start @ torch.linalg.solve_ex(one + skew, one - skew)[0]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply W at every position; the log-det is 0."""
        return mix_channels(self.matrix(), x), x.new_zeros(())

    def log_det(self) -> Tensor:
        """Return 0."""
        return self.signs.new_zeros(())

    def inverse(self, y: Tensor) -> Tensor:
        """Apply W^T at every position."""
        return mix_channels(self.matrix().T, y)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W (x) I_n: reflections one by one, or a function of A by the eigenvalues of the Hermitian i A."""
        reflections = self.reflections if self.parameterisation == "householder" else self.start
        weight = reflected(reflections, torch.diag(self.signs))
        if self.parameterisation != "householder":
            skew = self.lower.tril(-1) - self.lower.tril(-1).T
            values, vectors = torch.linalg.eigh(1j * skew)
            turned = torch.exp(-1j * values)
            if self.parameterisation == "cayley":
                turned = (1 + 1j * values) / (1 - 1j * values)
            weight = weight @ (vectors * turned @ vectors.mH).real
        return torch.kron(weight, torch.eye(self.positions, dtype=weight.dtype, device=weight.device))
