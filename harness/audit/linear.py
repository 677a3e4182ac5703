"""The audit of linear layers: log-det, linearity, condition and inverse."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness.audit.findings import Audit, dtype_name, largest
from harness.audit.layer_choice import DENSE_LIMIT, LayerMaker, smaller
from harness.audit.sparse import Product, factorised, sparse_matrix
from harness.audit.stochastic_log_det import NotDifferentiable, stochastic_log_det
from harness.timing.operations import INVERSE_LIMIT
from layers import InvertibleLinear, UnsupportedShape
from layers.base import push_identity

LINEARITY_LIMIT = 1e-6  # relative limit, in float64
SAMPLES = 8  # events on which a layer is checked
SVD_LIMIT = 1024  # D up to which all singular values are computed (0.25 s on one core); power iteration above
ITERATIONS = 30
SCALES = (1.0, 100.0)  # standard deviations at which a linear layer's inverse is checked


def audit_linear(
    result: Audit, path: str, layer: InvertibleLinear, value: Tensor, used: torch.dtype
) -> tuple[Tensor, float] | None:
    """Compare the log-det with the matrix; check linearity at the input in the flow, and the condition number.

    Returns:
        The matrix, (D, D), and its condition number; None above D = 4096 if the matrix is not sparse.
    """
    matrix = (push_identity if layer.dim <= DENSE_LIMIT else sparse_matrix)(layer, value.dtype)
    found = None if matrix is None else log_det_and_condition(matrix)
    if matrix is None or found is None:
        return None
    y, claimed = layer(value)
    offset = layer(torch.zeros_like(value[:1]))[0]
    expected = (matrix @ value.flatten(1).T).T.reshape(y.shape) + offset
    if not largest((y - expected) / expected.abs().clamp(min=1.0)) <= LINEARITY_LIMIT:
        result.reasons.append(f"{path}: it is not the linear map of its own matrix")
    log_det, condition = found
    result.compare(path, claimed, log_det)
    result.audited_layers += 1
    _enter_condition(result, path, condition, used)
    if layer.dim > DENSE_LIMIT:
        result.large_layers[path] = f"exactly, by the LU factors of its sparse matrix, D = {layer.dim}"
    return matrix, condition


def audit_large(
    result: Audit,
    path: str,
    layer: InvertibleLinear,
    value: Tensor,
    make_layer: LayerMaker | None,
    used: torch.dtype,
    probes: torch.Generator,
) -> float | None:
    """Audit a layer whose matrix is too large: exactly on a smaller event, and stochastically on its event.

    Returns:
        A lower bound on its condition number; None if it cannot be audited.
    """
    try:
        small = smaller(layer, make_layer)
        estimate = stochastic_log_det(layer, probes)
    except (UnsupportedShape, NotDifferentiable) as error:
        result.not_audited[path] = f"D = {layer.dim} is beyond {DENSE_LIMIT}, and {error}"
        return None
    start = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, *small.shape, generator=start, dtype=torch.float64).to(value)
    audit_linear(result, path, small, x, used)
    _enter_condition(result, path, estimate.condition, used)
    claimed = float(layer(value[:1])[1].flatten()[0])
    result.smallest_fault = max(result.smallest_fault or 0.0, estimate.allowance)
    result.large_layers[path] = (
        f"exactly on a smaller layer of shape {small.shape}, and at its own shape, D = {layer.dim}, by a "
        f"stochastic check that detects an error of {estimate.allowance:.3g} nats"
    )
    if estimate.excludes(claimed):
        result.logdet_error = max(result.logdet_error, abs(claimed - estimate.value))
        result.reasons.append(f"{path}: {estimate.contradiction(claimed)}")
    return estimate.condition


def audit_scales(result: Audit, path: str, layer: InvertibleLinear, like: Tensor) -> None:
    """Check the inverse at several scales, as the inverse of a linear map is linear whatever the size of the data."""
    start = torch.Generator().manual_seed(0)
    y = torch.randn(2, *layer.shape, generator=start, dtype=torch.float64).to(like)
    for scale in SCALES:
        try:
            error = largest(layer(layer.inverse(scale * y))[0] - scale * y) / scale
        except Exception:  # third-party code may raise anything: an inverse that raises is not an inverse
            error = math.inf
        if not error <= INVERSE_LIMIT:
            result.reasons.append(
                f"{path}: y -> x -> y is off by {error:.1e} (relative) for y of standard deviation {scale:g}"
            )
            return


def _enter_condition(result: Audit, path: str, condition: float, used: torch.dtype) -> None:
    if result.condition_path is None or condition > result.condition:
        result.condition, result.condition_path = condition, path
    if condition * torch.finfo(used).eps >= 1:
        result.reasons.append(f"{path}: condition {condition:.1e} makes it singular in {dtype_name(used)}")


def log_det_and_condition(matrix: Tensor) -> tuple[Tensor, float] | None:
    """Return log|det| of a square matrix, and the ratio of its largest to its smallest singular value.

    The condition number is inf for a singular or non-finite matrix. It is exact (SVD) up to D = 1024. Above, it comes
    from power iteration on W^T W and on its inverse with the LU factors that also give the determinant: a lower bound,
    which is within a few per cent of the truth unless the extreme singular values are crowded. None is returned for a
    sparse matrix whose factors are too large.
    """
    if matrix.is_sparse:
        found = factorised(matrix)
    elif not bool(matrix.isfinite().all()):
        return matrix.new_tensor(math.nan), math.inf
    elif len(matrix) <= SVD_LIMIT:
        values = torch.linalg.svdvals(matrix)
        condition = float(values[0] / values[-1]) if values[-1] > 0 else math.inf
        return torch.linalg.slogdet(matrix).logabsdet, condition
    else:
        factors, pivots, _ = torch.linalg.lu_factor_ex(matrix)  # a singular one has a pivot 0
        log_det = factors.diagonal().abs().log().sum()
        found = log_det, lambda v, transposed: (matrix.T if transposed else matrix) @ v, _solver(factors, pivots)
    if found is None:
        return None
    log_det, multiply, solve = found
    if not bool(log_det.isfinite()):
        return log_det, math.inf
    start = torch.randn(len(matrix), 1, generator=torch.Generator().manual_seed(0)).to(matrix.device, matrix.dtype)
    largest = smallest = start
    for _ in range(ITERATIONS):
        largest = multiply(multiply(largest / largest.norm(), False), True)
        smallest = solve(solve(smallest / smallest.norm(), True), False)
    # Norms of (W^T W) u and (W^T W)^-1 u for unit u: the squares of the largest and of the inverse smallest value.
    condition = float((largest.norm() * smallest.norm()).sqrt())
    return log_det, condition if math.isfinite(condition) else math.inf


def _solver(factors: Tensor, pivots: Tensor) -> Product:
    """Return the function that solves with a dense matrix."""
    if factors.device.type != "cpu":
        return lambda right, transposed: torch.linalg.lu_solve(factors, pivots, right, adjoint=transposed)
    from scipy.linalg import lu_solve

    # SciPy's call of the same LAPACK routine is eight times as fast for a single right-hand side.
    lu = factors.numpy(), (pivots - 1).numpy()
    return lambda right, transposed: torch.from_numpy(
        lu_solve(lu, right.numpy(), trans=int(transposed), check_finite=False)
    )
