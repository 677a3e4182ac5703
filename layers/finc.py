"""FInC: convolutions padded at one corner, of determinant 1."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_whole
from layers.linalg.corner import corner_convolution, corner_mask, corner_matrix, corner_solver, corner_taps


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
            mask = corner_mask(size, kernel_size, axes, unit=True)
            self.register_buffer(f"weight{group}_mask", mask, persistent=False)
            self.register_parameter(f"weight{group}", nn.Parameter(0.02 * torch.randn(mask.shape) * mask))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve each group from its corner; the log-det is 0."""
        groups = zip(self._taps(), x.split(self.sizes, 1), self.backwards, strict=True)
        return torch.cat([corner_convolution(*group) for group in groups], 1), x.new_zeros(())

    def log_det(self) -> Tensor:
        """Return 0."""
        return self.get_parameter("weight0").new_zeros(())

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Keep the current taps of every group; without kernels, factorise the blocks of every solve once."""
        groups = zip(self._taps(), self.backwards, strict=True)
        solvers = [corner_solver(taps, self.shape[1:], backwards) for taps, backwards in groups]

        def invert(y: Tensor) -> Tensor:
            parts = zip(solvers, y.split(self.sizes, 1), strict=True)
            return torch.cat([run(part) for run, part in parts], 1)

        return invert

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W, entry by entry from the definition: a diagonal block for each group."""
        groups = zip(self._taps(), self.backwards, strict=True)
        return torch.block_diag(*(corner_matrix(taps, self.shape[1:], backwards) for taps, backwards in groups))

    def _taps(self) -> list[Tensor]:
        """Return A of each group, index 0 at the pixel itself."""
        names = [f"weight{group}" for group in range(len(self.sizes))]
        return [corner_taps(getattr(self, n), self.get_buffer(f"{n}_mask"), unit=True) for n in names]
