"""Estimate log|det W| of a layer from products with W and its transpose alone, if W is too large to be formed.

Stochastic Lanczos quadrature (Ubaru, Chen and Saad, SIAM J. Matrix Anal. Appl. 38, 2017):

    log|det W| = 1/2 tr log(W^T W) = 1/2 E[v^T log(W^T W) v],   v uniform on {-1, 1}^D,

where each quadratic form is the Gauss quadrature of a Lanczos decomposition started at v. The estimator is unbiased up
to the error of the quadrature; its variance is that of the off-diagonal part of log(W^T W).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from layers import InvertibleLinear

PROBES = 32
STANDARD_ERRORS = 5.0  # allowed difference of a claim
CHECK_EVERY = 8  # Lanczos iterations between two evaluations of the quadrature
MOST_ITERATIONS = 96
CONVERGED = 0.1  # standard errors by which the mean may change between two evaluations
QUADRATURE = 1e-10  # nats per entry: the same if all probes agree, as for a diagonal W
TAIL = 2.0  # safety factor of what the quadrature has left to come
SYMMETRY = 1e-8  # relative tolerance in float64 of <W v, u> = <v, W^T u>


class NotDifferentiable(Exception):
    """The layer has no product with the transpose of W; the message gives the reason."""


@dataclass(frozen=True)
class LogDetEstimate:
    """log|det W| in nats per event."""

    value: float  # the mean over the probes
    allowance: float  # five standard errors, and a bound on what the quadrature lacks: the smallest fault it detects
    condition: float  # the ratio of the extreme singular values of the Lanczos iterations: a lower bound

    def contradiction(self, claimed: float) -> str:
        """Return how a claimed log-det differs from the estimate by more than the allowance; empty if it does not."""
        if abs(claimed - self.value) <= self.allowance:
            return ""
        return (
            f"log-det is {claimed:.6g} nats, but a stochastic estimate gives {self.value:.6g}, with "
            f"{self.allowance:.3g} allowed (five standard errors, and what the quadrature may lack); a nearly "
            "singular map has such an estimate, too"
        )


def stochastic_log_det(layer: InvertibleLinear, generator: torch.Generator, probes: int = PROBES) -> LogDetEstimate:
    """Estimate log|det W| of a layer with float64 weights, on its event shape.

    Forward must be differentiable by its input. The generator, on the CPU, draws the probes, which are one batch.

    Raises:
        NotDifferentiable: the backward pass by the input fails, or is not the transpose of the forward pass.
    """
    signs = torch.randint(0, 2, (probes, layer.dim), generator=generator).double() * 2 - 1
    tensor = next((t for t in (*layer.parameters(), *layer.buffers()) if t.is_floating_point()), signs)
    start = signs.to(tensor.device)
    transposed(layer, start)  # refuses a layer whose products are wrong
    most = min(MOST_ITERATIONS, layer.dim)
    basis = start.new_empty(probes, most, layer.dim)
    basis[:, 0] = start / math.sqrt(layer.dim)
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    estimates = previous = torch.full((probes,), math.nan, dtype=torch.float64)
    condition = math.inf
    for iteration in range(1, most + 1):
        newest = basis[:, iteration - 1]
        vector = _products(layer, newest)[1]  # W^T W v
        diagonal.append((vector * newest).sum(1))
        # Full reorthogonalisation, twice: without it the Ritz values repeat and the weights are wrong.
        former = basis[:, :iteration]
        for _ in range(2):
            vector = vector - torch.einsum("nk,nkd->nd", torch.einsum("nkd,nd->nk", former, vector), former)
        length = vector.norm(dim=1)
        exhausted = bool((length <= 1e-10 * torch.stack(diagonal).abs().amax(0)).all())
        if exhausted or iteration % CHECK_EVERY == 0:
            previous = estimates
            estimates, condition = _quadrature(diagonal, beside, layer.dim)
            moved = abs(float((estimates - previous).mean()))
            if exhausted or moved <= CONVERGED * _standard_error(estimates) + QUADRATURE * layer.dim:
                break
        if iteration < most:
            beside.append(length)
            basis[:, iteration] = vector / length.clamp(min=torch.finfo(torch.float64).tiny)[:, None]
    # Singular values near 0 can make the quadrature converge as slowly as 1 / k: then a change between the last two
    # evaluations leaves k / CHECK_EVERY times as much to come.
    moved = 0.0 if exhausted else abs(float((estimates - previous).mean())) * iteration / CHECK_EVERY
    allowance = STANDARD_ERRORS * _standard_error(estimates) + (TAIL * moved if math.isfinite(moved) else 0.0)
    # If all probes agree exactly (a diagonal W), only rounding remains.
    return LogDetEstimate(float(estimates.mean()), allowance + 1e-9 * layer.dim, condition)


def transposed(layer: InvertibleLinear, vectors: Tensor) -> Tensor:
    """Return W^T v of each vector, (N, D), by vector-Jacobian products of a layer in float64.

    Raises:
        NotDifferentiable: the backward pass by the input fails, or is not the transpose of the forward pass.
    """
    others = vectors.roll(1, 0)
    forward, back = _products(layer, vectors, others)
    ahead, behind = (forward * others).sum(1), (back * vectors).sum(1)
    error = float(((ahead - behind).abs() / ahead.abs().clamp(min=1.0)).max())
    if not error <= SYMMETRY * math.sqrt(layer.dim):
        raise NotDifferentiable(
            f"the gradient of y by x is not the transpose of forward: <W v, u> and <v, W^T u> differ by {error:.1e}"
        )
    return back.roll(-1, 0)


def _products(layer: InvertibleLinear, vector: Tensor, cotangent: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return W v and, by a vector-Jacobian product, W^T u for flattened events (N, D); u = W v without a cotangent."""
    with torch.enable_grad():
        x = vector.detach().reshape(-1, *layer.shape).requires_grad_()
        y = layer(x)[0]
        offset = layer(torch.zeros_like(x[:1]))[0].detach()
        if not y.requires_grad:
            raise NotDifferentiable("y carries no gradient, so there is no product with the transpose of W")
        forward = (y.detach() - offset).flatten(1)
        u = forward if cotangent is None else cotangent
        (back,) = torch.autograd.grad(y, x, u.reshape(y.shape), allow_unused=True)
    if back is None:
        raise NotDifferentiable("y does not depend on x in autograd's graph, so there is no product with W^T")
    return forward, back.flatten(1)


def _quadrature(diagonal: list[Tensor], beside: list[Tensor], dim: int) -> tuple[Tensor, float]:
    """Return 1/2 v^T log(W^T W) v for each probe on the CPU, and the ratio of the extreme Ritz values' roots."""
    matrix = torch.diag_embed(torch.stack(diagonal, 1))
    if beside:
        off = torch.diag_embed(torch.stack(beside, 1), offset=1)
        matrix = matrix + off + off.transpose(1, 2)
    if not bool(matrix.isfinite().all()):
        return torch.full((len(matrix),), math.nan, dtype=torch.float64), math.inf
    values, vectors = torch.linalg.eigh(matrix.cpu())
    weights = vectors[:, 0].square()
    logs = values.clamp(min=torch.finfo(torch.float64).tiny).log()
    smallest = float(values.min())
    condition = math.sqrt(float(values.max()) / smallest) if smallest > 0 else math.inf
    return dim / 2 * (weights * logs).sum(1), condition


def _standard_error(estimates: Tensor) -> float:
    return float(estimates.std() / math.sqrt(len(estimates)))
