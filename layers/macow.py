"""MaCow: masked convolutions in four directions."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_whole
from layers.kernels import load as kernels
from layers.linalg.convolution import convolution_matrix
from layers.linalg.corner import corner_solver

DIRECTIONS = ("above", "below", "left", "right")


class MaCow(InvertibleLinear, name="macow"):
    r"""Four masked convolutions, each of which sees what lies strictly on one side of the pixel; no bias.

    The first one sees h = (k + 1) / 2 rows of k pixels above,

        z[r, s] = x[r, s] + sum over 1 <= i <= h, |j| <= (k - 1) / 2 of A[i, j] x[r - i, s + j],

    with full c x c matrices A; the next ones see as many below, then k x h pixels to the left, then to the right, each
    applied to the result of the one before. At the end each channel is multiplied by exp(s). A sequence has two
    directions, the h places before and the h places after.

    The published layer is the autoregressive flow of the same four windows: a network with one hidden layer computes a
    shift and a scale of the pixel from the window, so it is not linear. This is its linear case, in which the scales of
    the four are one constant for each channel.

    Determinant: each factor is triangular in its direction with a unit diagonal, so log|det| = n * sum of s.
    Inverse: the last factor first, each by substitution, a whole row or column at once; those of a sequence as in
    `cinc`. Exact and differentiable.
    Parameters: 4 c^2 h k + c (2 c^2 h + c for a sequence).
    Singular cases: none. With large weights the inverse grows geometrically across the event.

    Family: convolutions
    Cost:
        forward: 4 c^2 n h k multiply-adds for images, 2 c^2 n h for sequences
        inverse: as many, in 2 H + 2 W steps one after the other; for sequences as that of two convolutions `cinc`
        log-det: c additions
    Shapes: every (C, L) and (C, H, W); a window may be larger than the event
    Source: MaCow (Ma, Kong, Zhang and Hovy, NeurIPS 2019)

    Args:
        kernel_size: k, odd: the default is a window of 2 x 3 pixels.
    """

    above: Tensor  # the weights of the first factor; one for each direction

    def __init__(self, shape: tuple[int, ...], *, kernel_size: int = 3) -> None:
        super().__init__(shape)
        check_whole("macow", "kernel_size", kernel_size, odd=True)  # a pixel is in line with the middle of its window
        self.kernel_size = kernel_size
        axes = len(self.shape) - 1
        self.depth = (kernel_size + 1) // 2
        # A sequence is an image of one column: what is before lies above.
        self.directions = DIRECTIONS[: 2 * axes]
        window = (self.depth, kernel_size if axes == 2 else 1)
        for direction in self.directions:
            weight = nn.Parameter(0.02 * torch.randn(self.channels, self.channels, *window))
            self.register_parameter(direction, weight)
        self.log_scale = nn.Parameter(torch.zeros(self.channels))  # s

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the factors, and return n times the sum of s."""
        z = x if x.ndim == 4 else x.unsqueeze(3)
        for direction in self.directions:
            weight: Tensor = getattr(self, direction)
            side = weight.shape[3] // 2
            # The window above a pixel does not hold the pixel's row: the last one of the event is in none.
            padding = [side, side, self.depth, -1]
            if direction in ("below", "right"):
                padding = [side, side, -1, self.depth]
            if direction in ("left", "right"):
                padding = padding[2:] + padding[:2]
            z = z + F.conv2d(F.pad(z, padding), _turned_back(weight, direction))
        return (z * self.log_scale.exp()[:, None, None]).reshape(x.shape), self.log_det()

    def log_det(self) -> Tensor:
        """Return n times the sum of s."""
        return self.positions * self.log_scale.sum()

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Keep the current weights; the callable solves for each factor, the last one first."""
        solvers = [self._solver(direction) for direction in reversed(self.directions)]
        shrink = (-self.log_scale).exp().view(-1, *[1] * (len(self.shape) - 1))

        def invert(y: Tensor) -> Tensor:
            z = y * shrink
            for solve in solvers:
                z = solve(z)
            return z

        return invert

    def _solver(self, direction: str) -> Callable[[Tensor], Tensor]:
        """Return the solve for one factor; that of a sequence is a convolution padded at one end."""
        weight: Tensor = getattr(self, direction)
        if len(self.shape) == 2:
            here = torch.eye(self.channels, dtype=weight.dtype, device=weight.device)[..., None]
            nearest_first = torch.cat((here, weight.squeeze(3).flip(2)), 2)
            return corner_solver(nearest_first, self.shape[1:], [direction == "above"])
        weight = weight.clone()

        def solve(z: Tensor) -> Tensor:
            compiled = kernels.serve_on_processor(z, weight)
            run = torch.ops.invertbench.solve_rows if compiled else _solve_above
            return _turned_back(run(_turned(z, direction), weight), direction)

        return solve

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the product of the factors, each written down entry by entry from the definition."""
        positions = self.shape[1:] if len(self.shape) == 3 else (*self.shape[1:], 1)
        side = (self.depth - self.above.shape[3] // 2,) * 2
        weight = torch.eye(self.dim).to(self.log_scale)
        for direction in self.directions:
            above = F.pad(getattr(self, direction), (*side, 0, self.depth + 1))  # square, about the pixel
            weight = weight + convolution_matrix(_turned_back(above, direction), positions, [self.depth] * 2) @ weight
        return self.log_scale.exp().repeat_interleave(self.positions)[:, None] * weight


def _turned(images: Tensor, direction: str) -> Tensor:
    """Return a batch of images with this direction at the top."""
    images = images.transpose(2, 3) if direction in ("left", "right") else images
    return images.flip(2) if direction in ("below", "right") else images


def _turned_back(images: Tensor, direction: str) -> Tensor:
    """Undo `_turned`; of kernels for the window above, return those for the window in this direction."""
    images = images.flip(2) if direction in ("below", "right") else images
    return images.transpose(2, 3) if direction in ("left", "right") else images


def _solve_above(y: Tensor, weight: Tensor) -> Tensor:
    """Return the x whose factor for the window above is y, row by row; the last row of the weight is the nearest."""
    rows: list[Tensor] = []
    for row in y.unbind(2):
        seen = rows[-weight.shape[2] :]
        if seen:
            kernel = weight[:, :, -len(seen) :]
            row = row - F.conv2d(torch.stack(seen, 2), kernel, padding=(0, weight.shape[3] // 2)).squeeze(2)
        rows.append(row)
    return torch.stack(rows, 2)
