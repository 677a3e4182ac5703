"""FInC: convolutions padded at one corner, of determinant 1."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_whole
from layers.kernels import load as kernels
from layers.linalg.causal import factorise, solve
from layers.linalg.convolution import convolution_matrix


class FInC(InvertibleLinear, name="finc"):
    r"""Corner-padded k x k convolutions, each on its own quarter of the channels; no bias.

    The channels are cut into four groups of nearly equal size, one for each corner of an image (two for a sequence,
    one for each end; as many as there are channels where they are fewer). A group that is padded at the top left sees
    itself and k - 1 pixels up and to the left,

        y[r, s] = sum over 0 <= a, b < k of A[a, b] x[r - a, s - b],    A[0, 0] lower triangular with a unit diagonal,

    and the other groups the same, turned to their corner. Channels of different groups do not mix: the step's 1x1
    convolution does that.

    Determinant: 1, so log|det| = 0.
    Inverse: forward substitution from the padded corner, exact and differentiable: by `invertbench::emerging_inverse`
    on a CPU in 32 or 64 bits, with an identity as its second kernel, else by `layers.linalg.causal`.
    Parameters: k^2 for each pair of channels of a group (k for a sequence), those of the triangle masked.
    Singular cases: none. With large weights the inverse grows geometrically across the event.

    Family: convolutions
    Cost:
        forward: c^2 n k^2 / 4 multiply-adds for images, c^2 n k / 2 for sequences
        inverse: as many by substitution (twice with the kernel), one pixel after the other along diagonals
        log-det: none, it is 0
    Shapes: every (C, L) and (C, H, W); a kernel may be larger than the event
    Source: FInC Flow (Kallappa, Nagar and Varma, VISAPP 2023)

    Args:
        kernel_size: k, at least 1, the same on both axes.
    """

    weight0: Tensor  # of the first group; one for each

    def __init__(self, shape: tuple[int, ...], *, kernel_size: int = 3) -> None:
        super().__init__(shape)
        check_whole("finc", "kernel_size", kernel_size)
        self.kernel_size = kernel_size
        axes = len(self.shape) - 1
        corners = list(itertools.product((False, True), repeat=axes))
        sizes = [len(group) for group in torch.arange(self.channels).tensor_split(len(corners)) if len(group)]
        self.sizes = sizes
        # For each group and axis: does it look backwards, to smaller indices, where its padding is?
        self.backwards = corners[: len(sizes)]
        for group, size in enumerate(sizes):
            mask = torch.ones(size, size, *[kernel_size] * axes, dtype=torch.bool)
            mask.flatten(2)[..., 0].tril_(-1)  # a view
            self.register_buffer(f"weight{group}_mask", mask, persistent=False)
            self.register_parameter(f"weight{group}", nn.Parameter(0.02 * torch.randn(mask.shape) * mask))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve each group from its corner; the log-det is 0."""
        convolve = F.conv2d if len(self.shape) == 3 else F.conv1d
        parts = []
        for part, taps, backwards in zip(x.split(self.sizes, 1), self._taps(), self.backwards, strict=True):
            reach = zip(reversed(taps.shape[2:]), reversed(backwards), strict=True)  # F.pad counts from the last axis
            padding = [(size - 1) * side for size, b in reach for side in (b, not b)]
            turned = taps.flip([axis for axis, b in enumerate(backwards, start=2) if b])
            parts.append(convolve(F.pad(part, padding), turned))
        return torch.cat(parts, 1), x.new_zeros(())

    def log_det(self) -> Tensor:
        """Return 0."""
        return self.get_parameter("weight0").new_zeros(())

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Keep the current taps of every group; without kernels, factorise the blocks of every solve once."""
        compiled, width = kernels.serve(*self._weights()), self.shape[-1]
        prepare = _kernel_solve if compiled else _plain_solve
        solvers = [prepare(taps, width) for taps in self._taps()]
        # Both solve from one corner: the kernel from the bottom right, the other from the top left.
        turns = [[axis for axis, b in enumerate(backwards, start=2) if b == compiled] for backwards in self.backwards]

        def invert(y: Tensor) -> Tensor:
            parts = y.split(self.sizes, 1)
            return torch.cat([run(part.flip(t)).flip(t) for run, part, t in zip(solvers, parts, turns, strict=True)], 1)

        return invert

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W, entry by entry from the definition: a diagonal block for each group."""
        blocks = []
        for weight, size, backwards in zip(self._weights(), self.sizes, self.backwards, strict=True):
            taps = weight.flatten(2).clone()
            taps[..., 0] = taps[..., 0].tril(-1) + torch.eye(size).to(taps)
            turned = taps.view_as(weight).flip([axis for axis, b in enumerate(backwards, start=2) if b])
            centre = [(self.kernel_size - 1) * b for b in backwards]
            blocks.append(convolution_matrix(turned, self.shape[1:], centre))
        return torch.block_diag(*blocks)

    def _weights(self) -> list[Tensor]:
        """Return the parameters of all groups, masked entries included."""
        return [getattr(self, f"weight{group}") for group in range(len(self.sizes))]

    def _taps(self) -> list[Tensor]:
        """Return a of each group, index 0 at the pixel itself, without the taps that no pixel of the event reaches."""
        reach = tuple(slice(0, size) for size in self.shape[1:])
        every = (slice(None), slice(None))
        taps = []
        for group, (weight, size) in enumerate(zip(self._weights(), self.sizes, strict=True)):
            identity = F.pad(torch.eye(size).to(weight)[..., None], (0, weight[0, 0].numel() - 1)).view_as(weight)
            taps.append((weight * self.get_buffer(f"weight{group}_mask") + identity)[(*every, *reach)])
        return taps


def _kernel_solve(taps: Tensor, width: int) -> Callable[[Tensor], Tensor]:
    """Return the compiled solve: the taps fill the corner of w1 that its mask keeps, and w2 is the identity."""
    first = F.pad(taps, [size - 1 if side == 0 else 0 for size in reversed(taps.shape[2:]) for side in (0, 1)])
    second = torch.zeros_like(first)
    second.flatten(2)[..., second[0, 0].numel() // 2].diagonal().fill_(1)  # a view of the centre
    return lambda y: torch.ops.invertbench.emerging_inverse(y, first, second, None)


def _plain_solve(taps: Tensor, width: int) -> Callable[[Tensor], Tensor]:
    """Return the solve in plain PyTorch; a sequence is an image of one row."""
    factors = factorise(taps if taps.ndim == 4 else taps.unsqueeze(2), width)
    return lambda y: solve(factors, y if y.ndim == 4 else y.unsqueeze(2)).reshape(y.shape)
