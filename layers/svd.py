"""The 1x1 convolution by its singular value decomposition, with singular values in a stated interval."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear
from layers.conv1x1 import Initialisation, initial_matrix, random_orthogonal
from layers.linalg.householder import householder_vectors, product_of_reflections, reflected
from layers.linalg.mixing import mix_channels


class SVD(InvertibleLinear, name="svd"):
    r"""1x1 convolution y[:, p] = W x[:, p] with bounded singular values, at each of the n positions p; no bias.

        W = U diag(signs * s) V^T,    U = H_1 ... H_c, V = K_1 ... K_c,    s_i = bound^tanh(a_i / log(bound)),

    with reflections H_i = I - 2 v_i v_i^T / (v_i^T v_i), K_i likewise, and free a_i. So every s_i is in [1 / bound,
    bound], the condition number of W is at most bound^2, and d log(s_i) / d a_i = 1 at the start, a_i = 0. The signs
    are fixed. W starts as a random orthogonal matrix (Haar) or a random permutation, the same as that of `conv1x1` for
    the same draw; V starts as another orthogonal matrix.

    Determinant: log|det| = n * sum(log(s)) = n log(bound) * sum(tanh(a / log(bound))).
    Inverse: V diag(signs / s) U^T at every position.
    Parameters: 2 c^2 + c; only the directions of the v_i count, and c^2 numbers are enough for W.
    Singular cases: none. A v_i = 0 reflects nothing.

    Family: 1x1 convolutions
    Cost:
        forward: c^2 n multiply-adds, after O(c^3) once per call for W
        inverse: the same
        log-det: c additions
    Shapes: every (C, L) and (C, H, W)
    Source: Zhang, Lei and Dhillon (ICML 2018), whose interval is r * (1 -+ width); products of reflections by few
    large products: Mathiasen et al. (NeurIPS 2020)

    Args:
        bound: the largest singular value, above 1.
        initialisation: of W, "orthogonal" or "permutation".

    Raises:
        ValueError: the bound is not a finite number above 1.
    """

    replaces_mixer = True

    signs: Tensor

    def __init__(
        self, shape: tuple[int, ...], *, bound: float = 100.0, initialisation: Initialisation = "orthogonal"
    ) -> None:
        super().__init__(shape)
        if not 1 < bound < math.inf:
            raise ValueError(f"svd: bound = {bound!r} is not allowed; use a finite number above 1, such as 100")
        self.bound = bound
        dtype = torch.get_default_dtype()
        start = initial_matrix("svd", self.channels, initialisation)
        right = householder_vectors(random_orthogonal(self.channels))[0]
        left, signs = householder_vectors(start @ product_of_reflections(right))
        self.left, self.right = nn.Parameter(left.to(dtype)), nn.Parameter(right.to(dtype))
        self.a = nn.Parameter(torch.zeros(self.channels))
        self.register_buffer("signs", signs.to(dtype))

    def log_s(self) -> Tensor:
        """Return the logarithms of the singular values, (C,), in the order of the columns of U."""
        limit = math.log(self.bound)
        return limit * (self.a / limit).tanh()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply W at every position; see the class for the log-det."""
        left, right = product_of_reflections(self.left), product_of_reflections(self.right)
        return mix_channels((left * (self.signs * self.log_s().exp())) @ right.T, x), self.log_det()

    def log_det(self) -> Tensor:
        """Return n * sum(log(s))."""
        return self.positions * self.log_s().sum()

    def inverse(self, y: Tensor) -> Tensor:
        """Apply V diag(signs / s) U^T at every position."""
        left, right = product_of_reflections(self.left), product_of_reflections(self.right)
        return mix_channels((right * (self.signs * (-self.log_s()).exp())) @ left.T, y)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W (x) I_n, reflection by reflection."""
        middle = torch.diag(self.signs * self.log_s().exp())
        weight = reflected(self.left, reflected(self.right, middle).T).contiguous()
        return torch.kron(weight, torch.eye(self.positions, dtype=weight.dtype, device=weight.device))
