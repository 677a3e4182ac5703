"""log|det| of a map from its derivatives alone, and the checks of an estimated one and of its Lipschitz bound.

The mean of many estimates, on a few samples cut to a small event, is compared with the log-det of the whole Jacobian
there. The bound is checked by the operator norm of every convolution as applied, in float64, by the Lanczos method,
which is independent of the power iteration that enforces the limit; by the resulting bound on the whole map; and by
the largest stretching of the Jacobian at the samples, which must not exceed that bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flows import Contraction

Map = Callable[[Tensor], Tensor]

COPIES = 512  # of a sample per pass
TOLERANCE = 1e-8  # relative tolerance of vector-Jacobian products in float64
DRAWS = 256  # estimates per sample
SURENESS = 4.0  # allowed standard errors of their mean
SMALL_EVENT = 256  # D up to which the matrix of a convolution is formed
NORM_TOLERANCE = 1e-6  # relative tolerance of its largest singular value for larger D
STRETCH_ITERATIONS = 20
SLACK = 0.01  # relative tolerance of the Jacobian's stretching over the bound: both are computed iteratively

Draw = Callable[[Tensor, torch.Generator], tuple[Tensor, Tensor]]


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
    log_dets = []
    for sample in x:
        rows = []
        for outputs in torch.arange(sample.numel(), device=sample.device).split(COPIES):
            with torch.enable_grad():
                copies = sample.detach().repeat(len(outputs), *[1] * sample.ndim).requires_grad_()
                diagonal = function(copies).reshape(len(outputs), -1).gather(1, outputs[:, None]).sum()
                rows.append(torch.autograd.grad(diagonal, copies)[0].reshape(len(outputs), -1))
        log_dets.append(torch.linalg.slogdet(torch.cat(rows)).logabsdet)
    return torch.stack(log_dets)


def compare_estimates(
    draw: Draw, function: Map, x: Tensor, largest: int, generator: torch.Generator
) -> tuple[float, float]:
    """Compare the mean of 256 estimates per sample with the log-det of the Jacobian, in nats per dimension.

    Args:
        draw: (x, generator) -> y and estimates of log|det| that are independent between events.
        function: x -> y.
        x: samples, (N, C, H, W), float64; their spatial axes are cropped until they have at most `largest` entries.

    Returns:
        The largest difference over the samples, and the largest difference that four standard errors allow.
    """
    while x[0].numel() > largest and max(x.shape[2:]) > 1:
        x = x[..., : -(-x.shape[2] // 2), : -(-x.shape[3] // 2)]
    exact = autograd_log_det(function, x)
    estimates = draw(x.repeat_interleave(DRAWS, dim=0), generator)[1].view(len(x), DRAWS)
    errors = (estimates.mean(1) - exact).abs().nan_to_num(nan=math.inf)
    spread = estimates.std(1) / math.sqrt(DRAWS)
    dim = x[0].numel()
    return float(errors.max()) / dim, SURENESS * float(spread.nan_to_num(nan=0.0).max()) / dim


def norm_bound(module: Contraction, x: Tensor, probes: torch.Generator) -> tuple[float, list[str]]:
    """Return the bound on Lip(g) that the weights of y = x + g(x) give, in float64, and faults at the samples x."""
    norms, over = [], ""
    for name, weight, shape, limit in module.operators():
        norms.append(operator_norm(weight, shape))
        if not norms[-1] <= limit:
            over += f"; {name} has operator norm {norms[-1]:.4f}, beyond its limit {limit:g}"
    bound = module.lipschitz(norms)
    # An iteration that may end early enforces the limits; invertibility needs a bound below 1.
    faults = []
    if not bound < 1:
        faults.append(f"Lipschitz constant at most {bound:.4f}, which proves no inverse: it must be below 1{over}")
    stretched = stretch(module, x, probes)
    if not stretched <= bound * (1 + SLACK):
        faults.append(f"at a sample the Jacobian stretches by {stretched:.4f}, beyond the bound {bound:.4f}")
    return bound, faults


def operator_norm(weight: Tensor, shape: tuple[int, ...]) -> float:
    """Return the largest singular value of a zero-padded "same" convolution on events of `shape`; inf if not finite."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    dim, padding = math.prod(shape), weight.shape[-1] // 2
    if not bool(weight.isfinite().all()):
        return math.inf
    if not bool(weight.any()):
        return 0.0
    if dim <= SMALL_EVENT:
        units = torch.eye(dim, dtype=weight.dtype, device=weight.device).view(dim, *shape)
        return float(torch.linalg.matrix_norm(F.conv2d(units, weight, padding=padding).flatten(1), 2))

    def squared(vector: Any) -> Any:
        """Apply the convolution and then its transpose."""
        x = torch.from_numpy(vector).to(weight).view(1, *shape)
        return F.conv_transpose2d(F.conv2d(x, weight, padding=padding), weight, padding=padding).flatten().cpu().numpy()

    start = torch.rand(dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy() + 0.5
    operator = LinearOperator((dim, dim), matvec=squared, dtype="float64")
    (largest,) = eigsh(operator, k=1, tol=NORM_TOLERANCE, v0=start, return_eigenvectors=False)
    return math.sqrt(largest)


def stretch(module: Contraction, x: Tensor, probes: torch.Generator) -> float:
    """Return the largest singular value of the Jacobian of g at the samples, from below, by power iteration."""

    def residual(value: Tensor) -> Tensor:
        return module.map(value) - value

    vector = torch.randn(x.shape, generator=probes, dtype=x.dtype).to(x.device)
    for _ in range(STRETCH_ITERATIONS):
        vector = F.normalize(vector.flatten(1), eps=torch.finfo(x.dtype).tiny).view_as(x)
        pushed = torch.autograd.functional.jvp(residual, x, vector)[1]
        vector = torch.autograd.functional.vjp(residual, x, pushed)[1]
    return float(vector.flatten(1).norm(dim=1).max().sqrt())
