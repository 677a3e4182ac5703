"""Convolutions padded at one corner of the event, or at one end of a sequence: their taps, the map and its inverse.

With the padding at the top left, on an image,

    y[r, s] = sum over 0 <= i, j < k of A[i, j] x[r - i, s - j],    A[0, 0] lower triangular over the channels;

at another corner the same, turned: on each axis the map looks `backwards`, to smaller indices, or forwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from layers.kernels import load as kernels
from layers.linalg.causal import factorise, solve
from layers.linalg.convolution import convolution_matrix


def corner_mask(channels: int, kernel_size: int, axes: int, *, unit: bool) -> Tensor:
    """Return the mask of A, (c, c, k) or (c, c, k, k): False above the diagonal of tap 0 and, if unit, on it."""
    mask = torch.ones(channels, channels, *[kernel_size] * axes, dtype=torch.bool)
    mask.flatten(2)[..., 0].tril_(-1 if unit else 0)  # a view
    return mask


def corner_taps(weight: Tensor, mask: Tensor, *, unit: bool) -> Tensor:
    """Return A from its parameters: masked, and with a unit diagonal at tap 0 if the mask leaves none."""
    if not unit:
        return weight * mask
    identity = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)[..., None]
    identity = F.pad(identity, (0, weight[0, 0].numel() - 1))
    return weight * mask + identity.view_as(weight)


def corner_convolution(taps: Tensor, x: Tensor, backwards: Sequence[bool]) -> Tensor:
    """Return y of a batch (N, c, *spatial)."""
    taps = _within(taps, x.shape[2:])
    reach = zip(reversed(taps.shape[2:]), reversed(backwards), strict=True)  # F.pad counts axes from the last
    padding = [(size - 1) * side for size, b in reach for side in (b, not b)]
    convolve = F.conv2d if x.ndim == 4 else F.conv1d
    return convolve(F.pad(x, padding), taps.flip(_axes(backwards, True)))


def corner_solver(taps: Tensor, sizes: Sequence[int], backwards: Sequence[bool]) -> Callable[[Tensor], Tensor]:
    """Factorise once; return the exact solve of y for x, on events of these spatial sizes, differentiable.

    By `invertbench::emerging_inverse`, with an identity as its second kernel, on a CPU or a CUDA device in 32 or 64
    bits, else by `layers.linalg.causal`. The kernel's gradients are those of the implicit function: for y a solve of
    the transposed system, for A a correlation of its result with x. A solve takes the pixels of a diagonal at once.
    """
    taps = _within(taps, sizes)
    compiled = kernels.serve(taps)
    run = _kernel_solve(taps) if compiled else _plain_solve(taps, sizes[-1])
    # Both solve from one corner: the kernel from the bottom right, the other from the top left.
    turned = _axes(backwards, compiled)
    return lambda y: run(y.flip(turned)).flip(turned) if turned else run(y)


def corner_matrix(taps: Tensor, sizes: Sequence[int], backwards: Sequence[bool]) -> Tensor:
    """Return the matrix of the map, (c n, c n), entry by entry from the definition."""
    centre = [(taps.shape[-1] - 1) * b for b in backwards]
    return convolution_matrix(taps.flip(_axes(backwards, True)), sizes, centre)


def _axes(backwards: Sequence[bool], side: bool) -> list[int]:
    """Return the axes of a batch, or of a kernel, on which the map looks to this side."""
    return [axis for axis, b in enumerate(backwards, start=2) if b == side]


def _within(taps: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the taps that a pixel of such an event reaches."""
    return taps[(slice(None), slice(None), *(slice(0, size) for size in sizes))]


def _kernel_solve(taps: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the compiled solve: the taps fill the corner of w1 that its mask keeps, and w2 is the identity."""
    first = F.pad(taps, [size - 1 if side == 0 else 0 for size in reversed(taps.shape[2:]) for side in (0, 1)])
    second = torch.zeros_like(first)
    second.flatten(2)[..., second[0, 0].numel() // 2].diagonal().fill_(1)  # a view of the centre
    return lambda y: torch.ops.invertbench.emerging_inverse(y, first, second, None)


def _plain_solve(taps: Tensor, width: int) -> Callable[[Tensor], Tensor]:
    """Return the solve in plain PyTorch; a sequence is an image of one row."""
    factors = factorise(taps if taps.ndim == 4 else taps.unsqueeze(2), width)
    return lambda y: solve(factors, y if y.ndim == 4 else y.unsqueeze(2)).reshape(y.shape)
