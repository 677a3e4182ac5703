"""log|det| of a map from its derivatives alone, to compare with its claimed log-determinant."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]

COPIES = 512  # of a sample per pass
TOLERANCE = 1e-8  # relative tolerance of vector-Jacobian products in float64


class NotTriangular(Exception):
    """The Jacobian lacks the form required of its kind of map; the message says which entries are off."""


def coupled_log_det(function: Map, x: Tensor, generator: torch.Generator) -> Tensor:
    """Return log|det| of a map that keeps some entries and scales the others one by one, given the kept ones.

    For couplings, ActNorm and element-wise maps the Jacobian is [[I, 0], [A, diag(s)]] up to the order of the
    entries. The vector-Jacobian product with ones on the moved entries gives s; one with a random vector there
    shows that nothing but s is in that block, and another one, on the kept entries, that those are unchanged.

    Args:
        function: (N, *shape) -> the same shape; independently for every sample.
        x: samples, float64; the kept entries are those that are unchanged in all of them.
        generator: draws the probes, on the CPU.

    Returns:
        sum log|s|, (N,).

    Raises:
        NotTriangular: the Jacobian has a different form.
    """
    with torch.enable_grad():
        start = x.detach().requires_grad_()
        y = function(start)
    moves = (y != start).flatten(1).any(0).reshape(x.shape[1:])
    moved = moves.to(x).expand_as(x)
    probe = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)

    def product(vector: Tensor) -> Tensor:
        return torch.autograd.grad(y, start, vector, retain_graph=True)[0]

    diagonal = product(moved) * moved
    _require_equal(product(probe * moved) * moved, probe * diagonal, "the moved entries do not move one by one")
    kept = probe * (1 - moved)
    _require_equal(product(kept), kept, "the kept entries depend on other entries")
    return torch.where(moves, diagonal, 1.0).abs().log().flatten(1).sum(1)


def _require_equal(product: Tensor, expected: Tensor, otherwise: str) -> None:
    error = (product - expected).abs().max() / expected.abs().max().clamp(min=1.0)
    if not bool(error <= TOLERANCE):
        raise NotTriangular(f"{otherwise}: a vector-Jacobian product is off by {float(error):.1e} (relative)")


def autograd_log_det(function: Map, x: Tensor) -> Tensor:
    """Return log|det| of a map by its whole Jacobian, D x D, one sample at a time: (N, *shape) -> (N,).

    The map is applied to copies of a sample, so that one backward pass of output i of the i-th copy gives all rows.
    This needs independent samples, and memory for 512 of them and for the Jacobian.
    """
    return torch.stack([torch.linalg.slogdet(_jacobian(function, sample)).logabsdet for sample in x])


def _jacobian(function: Map, sample: Tensor) -> Tensor:
    """Return the Jacobian (D, D); row i is the gradient of output i."""
    rows = []
    for outputs in torch.arange(sample.numel(), device=sample.device).split(COPIES):
        with torch.enable_grad():
            copies = sample.detach().repeat(len(outputs), *[1] * sample.ndim).requires_grad_()
            diagonal = function(copies).reshape(len(outputs), -1).gather(1, outputs[:, None]).sum()
            rows.append(torch.autograd.grad(diagonal, copies)[0].reshape(len(outputs), -1))
    return torch.cat(rows)
