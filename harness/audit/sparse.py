"""The determinant of a matrix that is too large to be formed, if few of its entries are not zero.

A layer that mixes few entries, such as a k x k convolution or some butterfly factors, has a sparse matrix. With rows
and columns in an order that keeps neighbours together (reverse Cuthill-McKee), it is banded, and so are its LU factors:
the cost is D times the square of the bandwidth in place of D^3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from layers import InvertibleLinear
from layers.linalg.precision import empty_like

COLUMNS = 256  # per pass
MOST_ENTRIES = 1024  # that are not zero, in a column on average
PIVOT = 0.1  # least pivot, in parts of the largest of its column: a third of the time with 1
MOST_WORK = 6e10  # D times the bandwidths of both factors: some seconds on one core

Product = Callable[[Tensor, bool], Tensor]
"""(v (D, 1), transposed) -> W v or W^T v, or the solution u of W u = v or W^T u = v."""


@torch.no_grad()
def sparse_matrix(layer: InvertibleLinear, dtype: torch.dtype) -> Tensor | None:
    """Return W (D, D), from the identity pushed through `forward`, as a sparse tensor; None if it has many entries."""
    like = empty_like(layer).to(dtype)
    offset = layer(like.new_zeros(1, *layer.shape))[0].reshape(1, layer.dim)
    biased, rows = bool((offset != 0).any()), []
    for numbers in torch.arange(layer.dim, device=like.device).split(COLUMNS):
        basis = like.new_zeros(len(numbers), layer.dim).scatter_(1, numbers[:, None], 1.0)
        images = layer(basis.reshape(-1, *layer.shape))[0].reshape(-1, layer.dim)
        rows.append((images - offset if biased else images).to_sparse())
        if rows[-1].values().numel() > MOST_ENTRIES * len(numbers):
            return None
    return torch.cat(rows).t().coalesce()


def factorised(matrix: Tensor) -> tuple[Tensor, Product, Product] | None:
    """Return log|det| of a sparse matrix, and functions that multiply and that solve with it.

    None is returned if its band is too wide. A matrix that is not finite has the log-det nan, a singular one -inf.
    """
    from scipy.sparse import bmat, csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee
    from scipy.sparse.linalg import splu

    size, (row, column), values = len(matrix), matrix.indices().cpu().numpy(), matrix.values().cpu().numpy()
    entries = csr_matrix((values, (row, column)), shape=(size, size))
    # Rows and columns are ordered apart: a permutation of entries is no reason for a wide band.
    order = reverse_cuthill_mckee(bmat([[None, entries], [entries.T, None]], format="csr"), symmetric_mode=True)
    rows, columns = order[order < size], order[order >= size] - size
    banded = entries[rows][:, columns].tocoo()
    offsets = banded.row - banded.col
    below, above = 1 + max(0, offsets.max(initial=0)), 1 + max(0, -offsets.min(initial=0))
    if size * float(below) * float(below + above) > MOST_WORK:
        return None

    def multiply(right: Tensor, transposed: bool) -> Tensor:
        return torch.from_numpy((entries.T if transposed else entries) @ right.cpu().numpy()).to(right)

    if not bool(matrix.values().isfinite().all()):
        return matrix.new_tensor(math.nan), multiply, multiply
    try:
        factors = splu(banded.tocsc(), permc_spec="NATURAL", diag_pivot_thresh=PIVOT)
    except RuntimeError:  # exactly singular
        return matrix.new_tensor(-math.inf), multiply, multiply

    def solve(right: Tensor, transposed: bool) -> Tensor:
        given, solved, trans = (columns, rows, "T") if transposed else (rows, columns, "N")
        solution = torch.empty_like(right)
        solution[solved.tolist()] = torch.from_numpy(factors.solve(right.cpu().numpy()[given], trans)).to(right)
        return solution

    log_det = torch.from_numpy(factors.U.diagonal()).abs().log().sum()
    return log_det.to(matrix.device), multiply, solve
