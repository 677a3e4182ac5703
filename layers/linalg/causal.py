"""The exact inverse of a causal convolution, by block forward substitution in plain PyTorch.

It runs on every device, and is the reference of the kernel that replaces it on a CPU.

The map, on images zero-padded on top and on the left,

    y[r, s] = sum over 0 <= i < a, 0 <= j < b of A[i, j] x[r - i, s - j],    A[0, 0] lower triangular,

is lower triangular in raster order. A row is cut into blocks of B columns, about `BLOCK_UNKNOWNS` unknowns each.
With the unknowns of one block stacked into a vector, T its triangular matrix, and G and K the weights of what
is left of it in its row and in the rows above,

    x_block = T^-1 y_block - (T^-1 G) left - (T^-1 K) above.

The convolution is the same everywhere, so all blocks of all events share these three matrices: one product
applies T^-1 to everything at once, and then a row costs one product for the rows above and one for each block.
T is a diagonal block of the triangular matrix W of the whole map and T^-1 one of W^-1, so T is never worse
conditioned than W.

A sequence is an image of one row. Every step is out of place: autograd can follow it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Larger blocks mean fewer steps but more wasted arithmetic, and factorising costs the cube of the size. Between 64
# and 512 unknowns, 128 was the fastest or close to it on a CPU, for images with 3 to 48 channels and for sequences
# with 26 taps. Measured against H + W - 1 anti-diagonal wavefronts it is several times faster for few channels or
# wide kernels, where these gather every neighbour anew, about equal for 12x16x16 and 48x8x8 with 3 x 3 kernels,
# and slower only for very many channels (3 times at 96x32x32, a batch of 4).
BLOCK_UNKNOWNS = 128


class CausalFactors(NamedTuple):
    """The matrices that all blocks share; m = B c unknowns per block, g <= (b - 1) c of them reach in from the left."""

    inverse: Tensor  # T^-1, (m, m)
    left: Tensor  # -T^-1 G, (m, g); g = 0 where one block spans the row
    above: Tensor  # -T^-1 K, (m, (a - 1) (g + m)), the nearest row first


def factorise(taps: Tensor, width: int) -> CausalFactors:
    """Return the matrices that invert the causal convolution on rows of `width` pixels, at least b.

    The taps are A as (c, c, a, b): output channel, input channel, rows up, columns to the left.
    """
    channels, _, _, columns = taps.shape
    blocks = -(-width // max(1, BLOCK_UNKNOWNS // channels))
    block = -(-width // blocks)
    reach = columns - 1 if blocks > 1 else 0
    size = block * channels

    outputs = torch.arange(block, device=taps.device)[:, None]
    inputs = torch.arange(-reach, block, device=taps.device)
    lag = outputs - inputs
    lag = torch.where((lag >= 0) & (lag < columns), lag, columns)  # index `columns` holds the padded zero
    # Axes: output column, output channel, row up, input column, input channel.
    window = F.pad(taps, (0, 1))[..., lag].permute(3, 0, 2, 4, 1)

    block_matrix = window[:, :, 0, reach:].reshape(size, size)
    identity = torch.eye(size, dtype=taps.dtype, device=taps.device)
    inverse = torch.linalg.solve_triangular(block_matrix, identity, upper=False)
    left = -inverse @ window[:, :, 0, :reach].reshape(size, reach * channels)
    above = -inverse @ window[:, :, 1:].reshape(size, -1)
    return CausalFactors(inverse, left, above)


def solve(factors: CausalFactors, y: Tensor) -> Tensor:
    """Return the x, (N, c, H, W), whose causal convolution is y, (N, c, H, W)."""
    inverse, left, above = factors
    events, channels, height, width = y.shape
    size, reach = left.shape
    block = size // channels
    blocks = -(-width // block)
    depth = above.shape[1] // (reach + size)

    # Columns added on the right to fill the last block: no column of the event reads them.
    y = F.pad(y, (0, blocks * block - width)).permute(2, 3, 1, 0).reshape(height, blocks, size, events)
    margin = y.new_zeros(reach, events)
    rows: list[Tensor] = []  # each (reach + blocks * size, N), zeros first
    for row in inverse @ y:
        nearest_first = rows[: -depth - 1 : -1]
        if nearest_first:
            # Not by `unfold`, whose gradient has no batching rule in torch.func.
            windows = [
                torch.stack([solved[start : start + reach + size] for start in range(0, blocks * size, size)])
                for solved in nearest_first
            ]
            seen = torch.cat(windows, dim=1)
            row = torch.baddbmm(row, above[:, : seen.shape[1]].expand(blocks, -1, -1), seen)
        parts, history = [margin], margin
        for right_hand_side in row:
            parts.append(torch.addmm(right_hand_side, left, history))
            history = torch.cat([history, parts[-1]])[size:]
        rows.append(torch.cat(parts))
    x = torch.stack(rows)[:, reach:].reshape(height, blocks * block, channels, events)
    return x[:, :width].permute(3, 2, 0, 1).contiguous()
