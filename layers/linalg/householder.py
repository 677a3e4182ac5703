"""Products of Householder reflections, and the reflections that make up an orthogonal matrix."""

from __future__ import annotations

import torch
from torch import Tensor


def product_of_reflections(vectors: Tensor) -> Tensor:
    """Return H_1 H_2 ... H_k with H_i = I - 2 v_i v_i^T / (v_i^T v_i), in one triangular solve.

    With unit vectors u_i as the columns of U, the product is I - U S^-1 U^T for S = striu(U^T U) + I / 2 (the UT
    transform, Joffrain et al. 2006). S^-1 has entries of at most 4, so the product is orthogonal up to rounding.

    Args:
        vectors: v_i as rows, (k, c), of any length; a zero vector stands for the identity.

    Returns:
        The product, (c, c).
    """
    # The rows at length 1. The square of a tiny entry must not underflow; the scale cancels, so it needs no gradient.
    scale = vectors.detach().abs().amax(1, keepdim=True)
    scaled = vectors / torch.where(scale > 0, scale, 1)
    squares = scaled.square().sum(1, keepdim=True)
    units = scaled * torch.where(squares > 0, squares, 1).rsqrt()
    count, size = units.shape
    half = 0.5 * torch.eye(count, dtype=units.dtype, device=units.device)
    inner = torch.linalg.solve_triangular((units @ units.T).triu(1) + half, units, upper=True)
    return torch.eye(size, dtype=units.dtype, device=units.device) - units.T @ inner


def reflected(vectors: Tensor, matrix: Tensor) -> Tensor:
    """Return H_1 H_2 ... H_k times a matrix, one reflection after the other: for `dense`, and to compare with."""
    for v in vectors.flip(0):
        matrix = matrix - 2 * torch.outer(v, v @ matrix) / v.dot(v) if v.any() else matrix
    return matrix


def householder_vectors(orthogonal: Tensor) -> tuple[Tensor, Tensor]:
    """Return unit vectors v_i (rows, (c, c)) and signs (c,) with H_1 ... H_c diag(signs) = `orthogonal`, (c, c)."""
    packed, factors = torch.geqrf(orthogonal)
    vectors = (packed.tril(-1) + torch.eye(len(packed), dtype=packed.dtype)).T.contiguous()
    # LAPACK does not reflect a column that is done; its vector is the unit vector, whose reflection turns the sign.
    signs = packed.diagonal().sign() * torch.where(factors == 0, -1, 1)
    return vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True), signs
