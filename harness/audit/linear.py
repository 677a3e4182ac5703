"""The audit of linear layers: which of them are checked, their log-det, condition and inverse.

Up to D = 4096 the matrix of a layer is formed. Above, that of one layer of each class and shape is, if it is sparse.
The others are checked exactly on a smaller event, and at their true shape by a stochastic estimate
(`harness.audit.stochastic_log_det`), as D^3 for D = 12,288 takes half a minute and 3.6 GB.

A layer that mixes few entries, such as a k x k convolution or some butterfly factors, has a sparse matrix. With rows
and columns in an order that keeps neighbours together (reverse Cuthill-McKee), it is banded, and so are its LU factors:
the cost is D times the square of the bandwidth in place of D^3.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from harness.audit.applied import AuditedMap, audited_map
from harness.audit.findings import Audit, dtype_name, largest
from harness.audit.stochastic_log_det import NotDifferentiable, stochastic_log_det
from harness.evaluation.evaluation import generator, state_of
from harness.timing.operations import INVERSE_LIMIT, perturb
from layers import InvertibleLinear, UnsupportedShape
from layers.base import push_identity
from layers.linalg.precision import empty_like

DENSE_LIMIT = 4096  # D up to which the matrix of a layer is formed
STAND_IN_LIMIT = 1024  # D of the smaller layer that is checked in its place
WORK_LIMIT = 5e10  # sum of D^3 over the audited layers: seconds on one core
SAMPLES = 8  # events on which a layer is checked
SVD_LIMIT = 1024  # D up to which all singular values are computed (0.25 s on one core); power iteration above
ITERATIONS = 30
SCALES = (1.0, 100.0)  # standard deviations at which a linear layer's inverse is checked
COLUMNS = 256  # per pass
MOST_ENTRIES = 1024  # that are not zero, in a column on average
MOST_OF_ALL = 1 << 24  # the same of the whole matrix: two to three GB while it is sorted and factorised
PIVOT = 0.1  # least pivot, in parts of the largest of its column: a third of the time with 1
MOST_WORK = 6e10  # D times the bandwidths of both factors: some seconds on one core

LayerMaker = Callable[[InvertibleLinear, tuple[int, ...]], InvertibleLinear]

Product = Callable[[Tensor, bool], Tensor]
"""(v (D, 1), transposed) -> W v or W^T v, or the solution u of W u = v or W^T u = v."""


def chosen_layers(layers: Mapping[str, InvertibleLinear], seed: int) -> dict[str, bool]:
    """Return the paths of the layers to audit, each with whether its matrix is formed.

    These are all within the work limit, else a sample, which always contains the first and the last of each kind at
    each event shape, then random others as far as the limit allows. Above D = 4096 the matrix of one of each kind and
    shape is formed. `layers` are in the order of application.
    """
    chosen = {path for paths in _by_kind(layers) for path in (paths[0], paths[-1])}
    sizes = {path: layer.dim if layer.dim <= DENSE_LIMIT else STAND_IN_LIMIT for path, layer in layers.items()}
    work = sum(sizes[path] ** 3 for path in chosen)
    others = [path for path in layers if path not in chosen]
    random.Random(seed).shuffle(others)
    for path in others:
        work += sizes[path] ** 3
        if work > WORK_LIMIT:
            break
        chosen.add(path)
    large = {path: layer for path, layer in layers.items() if path in chosen and layer.dim > DENSE_LIMIT}
    formed = {random.Random(seed).choice(paths) for paths in _by_kind(large)}
    return {path: path in formed or path not in large for path in chosen}


def _by_kind(layers: Mapping[str, InvertibleLinear]) -> list[list[str]]:
    """Return the paths of the layers of each class and event shape."""
    groups: dict[object, list[str]] = {}
    for path, layer in layers.items():
        groups.setdefault((type(layer), layer.shape), []).append(path)
    return list(groups.values())


def smaller(layer: InvertibleLinear, make_layer: LayerMaker | None) -> InvertibleLinear:
    """Return a layer of the same kind and options on a smaller event; raise UnsupportedShape if there is none.

    Weights that do not depend on the size of the event are copied; otherwise those of the smaller layer are
    perturbed from initialisation.
    """
    if make_layer is None:
        raise UnsupportedShape("it cannot be built smaller")
    channels, *spatial = layer.shape
    for halvings in itertools.count(1):
        shape = (channels, *(max(1, size >> halvings) for size in spatial))
        if math.prod(shape) <= STAND_IN_LIMIT or math.prod(shape) == channels:
            break
    try:
        small = make_layer(layer, shape)
    except UnsupportedShape as error:
        raise UnsupportedShape(f"smaller: {error}") from error
    small.train(layer.training)
    small.to(empty_like(layer))
    shapes = [{name: value.shape for name, value in state_of(each).items()} for each in (layer, small)]
    if shapes[0] == shapes[1]:
        small.load_state_dict(layer.state_dict())
    else:
        perturb(small, 0.05, torch.Generator().manual_seed(0))
    return small


def audit_linear_layers(
    result: Audit,
    parts: list[tuple[str, nn.Module, Tensor]],
    probes: torch.Generator,
    make_layer: LayerMaker | None,
    seed: int,
    used: torch.dtype,
) -> dict[str, AuditedMap]:
    """Check the linear layers among `parts` (path, module, input) in float64; return the map of each, if it has one."""
    linear = {path: (module, value) for path, module, value in parts if isinstance(module, InvertibleLinear)}
    chosen = chosen_layers({path: module for path, (module, _) in linear.items()}, seed)
    draws = generator(torch.device("cpu"), seed, "audit functionals")
    result.linear_layers = len(linear)
    maps = {}
    for path, (module, value) in linear.items():
        formed = _audit_linear(result, path, module, value, used) if chosen.get(path) else None
        matrix, condition = formed or (None, None)
        if matrix is None and path in chosen:
            condition = _audit_large(result, path, module, value, make_layer, used, probes)
        try:
            maps[path] = audited_map(module, module(value)[1], matrix, condition, draws)
        except NotDifferentiable as error:
            result.not_audited.setdefault(path, f"its matrix is not formed, and {error}")
    return maps


def _audit_linear(
    result: Audit, path: str, layer: InvertibleLinear, value: Tensor, used: torch.dtype
) -> tuple[Tensor, float] | None:
    """Compare the log-det with the matrix's; return that and its condition, or None if neither small nor sparse."""
    matrix = (push_identity if layer.dim <= DENSE_LIMIT else sparse_matrix)(layer, value.dtype)
    found = None if matrix is None else log_det_and_condition(matrix)
    if matrix is None or found is None:
        return None
    log_det, condition = found
    result.compare(path, layer(value)[1], log_det)
    result.audited_layers += 1
    _enter_condition(result, path, condition, used)
    if layer.dim > DENSE_LIMIT:
        result.large_layers[path] = f"exactly, by the LU factors of its sparse matrix, D = {layer.dim}"
    return matrix, condition


def _audit_large(
    result: Audit,
    path: str,
    layer: InvertibleLinear,
    value: Tensor,
    make_layer: LayerMaker | None,
    used: torch.dtype,
    probes: torch.Generator,
) -> float | None:
    """Audit a large layer by a smaller one and stochastically; return a lower bound on its condition, or None."""
    try:
        small = smaller(layer, make_layer)
        estimate = stochastic_log_det(layer, probes)
    except (UnsupportedShape, NotDifferentiable) as error:
        result.not_audited[path] = f"D = {layer.dim} is beyond {DENSE_LIMIT}, and {error}"
        return None
    start = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, *small.shape, generator=start, dtype=torch.float64).to(value)
    _audit_linear(result, path, small, x, used)
    _enter_condition(result, path, estimate.condition, used)
    claimed = float(layer(value[:1])[1].flatten()[0])
    result.smallest_fault = max(result.smallest_fault or 0.0, estimate.allowance)
    result.large_layers[path] = (
        f"exactly on a smaller layer of shape {small.shape}, and at its own shape, D = {layer.dim}, by a "
        f"stochastic check that detects an error of {estimate.allowance:.3g} nats"
    )
    if fault := estimate.contradiction(claimed):
        result.logdet_error = max(result.logdet_error, abs(claimed - estimate.value))
        result.reasons.append(f"{path}: {fault}")
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
        found = _dense_factors(matrix)
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


def _dense_factors(matrix: Tensor) -> tuple[Tensor, Product, Product]:
    """Return what `factorised` does, of a dense matrix; SciPy solves eight times as fast as torch on a CPU."""
    from scipy.linalg import lu_solve

    factors, pivots, _ = torch.linalg.lu_factor_ex(matrix)  # a singular one has a pivot 0
    lu = factors.cpu().numpy(), (pivots - 1).cpu().numpy()

    def solve(right: Tensor, transposed: bool) -> Tensor:
        solved = lu_solve(lu, right.cpu().numpy(), trans=int(transposed), check_finite=False)
        return torch.from_numpy(solved).to(right)

    return factors.diagonal().abs().log().sum(), lambda v, transposed: (matrix.T if transposed else matrix) @ v, solve


@torch.no_grad()
def sparse_matrix(layer: InvertibleLinear, dtype: torch.dtype) -> Tensor | None:
    """Return W (D, D), from the identity pushed through `forward`, as a sparse tensor; None if it has many entries."""
    like = empty_like(layer).to(dtype)
    offset = layer(like.new_zeros(1, *layer.shape))[0].reshape(1, layer.dim)
    biased, most = bool((offset != 0).any()), min(MOST_ENTRIES, MOST_OF_ALL // layer.dim) * layer.dim
    # In place: kept between the large blocks of the passes, small tensors would hold up the memory of all passes.
    places, values, count = torch.empty(2, most, dtype=torch.int64, device=like.device), like.new_empty(most), 0
    for numbers in torch.arange(layer.dim, device=like.device).split(COLUMNS):
        basis = like.new_zeros(len(numbers), layer.dim).scatter_(1, numbers[:, None], 1.0)
        images = layer(basis.reshape(-1, *layer.shape))[0].reshape(-1, layer.dim)
        entries = (images - offset if biased else images).to_sparse()
        first, count = count, count + entries.values().numel()
        if count > most:
            return None
        columns, rows = entries.indices()
        places[0, first:count], places[1, first:count] = rows, numbers[0] + columns
        values[first:count] = entries.values()
    size = (layer.dim, layer.dim)
    return torch.sparse_coo_tensor(places[:, :count], values[:count], size, check_invariants=False).coalesce()


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
