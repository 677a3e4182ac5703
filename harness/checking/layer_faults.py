"""Hints at the cause of a wrong result, for the author of a layer.

Every function returns text to append to a message, empty if no cause is recognised. A hint is given only if it
explains the whole error, up to rounding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness.checking.layer_case import inverse_matrix, matrix, relative_error
from layers import InvertibleLinear

EXPLAINED = 1e-3  # relative limit of the error that a hint leaves unexplained


def explain_log_det(claimed: float, truth: float, layer: InvertibleLinear) -> str:
    """Return the error of a wrong log-det, and a hint from its ratio to the right one."""
    error, n, c = claimed - truth, layer.positions, layer.channels
    if not math.isfinite(error):
        return ""
    text = f": off by {error:.4g} nats, {error / n:.4g} per position and {error / c:.4g} per channel"
    if abs(claimed) < 1e-9 or abs(truth) < 1e-9:
        return text
    spatial = {1: "T", 2: "H * W"}[len(layer.shape) - 1]
    causes = {
        float(n): f"the number of positions: multiply by n = {spatial}",
        1 / n: f"one over the number of positions: n = {spatial} is counted twice",
        float(c): "the number of channels: multiply by C",
        -1.0: "the sign is wrong: is this the log-det of the inverse?",
        2.0: "half is missing: is one of two factors (or of each mirrored pair) left out?",
        0.5: "all of it is counted twice",
        1 / c: "one over the number of channels: C is counted too often",
    }
    for ratio, meaning in causes.items():
        if ratio != 1 and abs(truth - ratio * claimed) <= EXPLAINED * abs(error):
            return f"{text}; ratio {ratio:.4g}, {meaning}"
    return text


def explain_dense(claimed: Tensor, w: Tensor, tolerance: float) -> str:
    """Return a hint from comparing a wrong dense() with the matrix of forward."""
    if relative_error(claimed.T, w) <= tolerance:
        return ": it is transposed; W @ x.reshape(D) = y.reshape(D)"
    if relative_error(claimed.flatten().sort().values, w.flatten().sort().values) <= tolerance:
        return ": the same entries in different places; index D in row-major order of (C, *spatial)"
    return ""


def explain_inverse(layer: InvertibleLinear, tolerance: float, dtype: torch.dtype) -> str:
    """Return a hint from comparing the matrix of a wrong inverse with that of forward."""
    w, claimed = matrix(layer, dtype), inverse_matrix(layer, dtype)
    inverted = torch.linalg.inv(w)
    if relative_error(claimed, inverted) <= tolerance:
        return ": the linear part is right, the offset is not; subtract the bias before solving"
    if relative_error(claimed, inverted.T) <= tolerance:
        return ": it inverts the transpose of W"
    if relative_error(claimed, inverted) > EXPLAINED:
        return ": its matrix is not the inverse of forward's (are the factors undone in reverse order?)"
    return ""
