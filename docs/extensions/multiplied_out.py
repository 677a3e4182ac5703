"""A second design of the butterfly for GPUs, in plain PyTorch: its levels multiplied out into blocks of up to 32 x 32.

Write the place of an entry as (o, r, c), with r a number of m bits. Levels s to s + m - 1 change r alone, so their
product is one dense matrix of 2^m x 2^m for each (o, c), which depends on weights alone:

    y[n, o, :, c] = B[o, c] x[n, o, :, c],    o < 2^(s - 1),  c < D / 2^(s - 1 + m).

At D = 3072 ten levels are two such products of 96 blocks: 64 multiply-adds for an entry in place of 20, in two passes
over the events. In PyTorch each product is a `torch.bmm` between permutations, so the two move five copies of the
events; the kernel in products/, with the permutation in its addressing, moves two. The gradient of the events is the
product with transposed blocks, and that of the blocks a sum over the events, by another kernel; that of the factors
follows from it on weights alone. None of this has run on a device yet: `device_run.py` times it beside csrc.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from layers.butterflies import pairs
from layers.butterfly import Butterfly
from layers.kernels import build, cuda

BITS = 5  # of the largest blocks
FOLDER = Path(__file__).parent / "products"
TILES = ("8 pairs x 64 samples", "16 pairs x 32 samples")
CHUNKS = 16  # of the events, whose gradients of blocks are added up at the end
ARGUMENTS = [ctypes.c_void_p] * 3 + [ctypes.c_longlong] + [ctypes.c_int] * 4  # of a launch, but for the last


class MultipliedOut(Butterfly):
    """A butterfly of levels 1..M of one part; the log-det is that of the 2x2 matrices."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Multiply the levels out, and apply the blocks."""
        return self.multiplied(blocks_of(self.weight, self.plan), x), self.log_det()

    def inverse(self, y: Tensor) -> Tensor:
        """Do the same with the inverse matrices, the last level first."""
        return self.multiplied(blocks_of(pairs.invert_weight(self.weight), self.plan, backwards=True), y)

    def multiplied(self, blocks: Iterable[Tensor], x: Tensor) -> Tensor:
        """Apply the products one after another to events (N, C, *spatial)."""
        flat = self._flat(x).flatten(1)
        for of_stage in blocks:
            flat = apply_blocks(of_stage, flat)
        return self._unflat(flat.unsqueeze(1))


def blocks_of(weight: Tensor, plan: pairs.ButterflyPlan, backwards: bool = False) -> Iterator[Tensor]:
    """Yield the blocks (o, c, 2^m, 2^m) of each product, the first applied first, or backwards the last.

    The levels are applied to unit vectors of r.
    """
    [part] = plan.parts
    assert part.levels == tuple(range(1, len(part.levels) + 1)), "levels are not 1..M in this order"
    [chain] = pairs._chains(weight, plan)
    stages = math.ceil(len(chain) / BITS)
    edges = [len(chain) * stage // stages for stage in range(stages + 1)] if stages else [0]
    spans = list(pairwise(edges))
    for first, last in reversed(spans) if backwards else spans:
        outer, rows, inner = 2**first, 2 ** (last - first), part.size // 2**last
        units = torch.eye(rows, dtype=weight.dtype, device=weight.device).view(1, rows, 1, rows)
        units = units.expand(outer, rows, inner, rows).reshape(part.size, rows)
        for matrices in reversed(chain[first:last]) if backwards else chain[first:last]:
            units = pairs.apply_factor(matrices, units)
        yield units.view(outer, rows, inner, rows).transpose(1, 2)


def apply_blocks(blocks: Tensor, x: Tensor) -> Tensor:
    """Return y[n, o, :, c] = B[o, c] x[n, o, :, c] for blocks (o, c, r, r) and x (N, D)."""
    outer, inner, rows, _ = blocks.shape
    digits = x.view(len(x), outer, rows, inner).permute(1, 3, 2, 0)
    products = torch.bmm(blocks.flatten(0, 1), digits.flatten(0, 1))
    return products.view(outer, inner, rows, -1).permute(3, 0, 2, 1).reshape(len(x), -1)


def sizes(blocks: Tensor, x: Tensor) -> tuple[int, int, int, int]:
    """Return batch, outer, inner and rows of blocks (o, c, r, r) and x (N, D)."""
    return len(x), *blocks.shape[:3]


def arguments(blocks: Tensor, x: Tensor, y: Tensor, tiles: int) -> tuple[int, ...]:
    """Return the arguments of a launch for blocks (o, c, r, q) that are transposed in memory, and x, y (N, D)."""
    assert blocks.mT.is_contiguous() and x.is_contiguous() and y.is_contiguous()
    return (blocks.data_ptr(), x.data_ptr(), y.data_ptr(), *sizes(blocks, x), tiles)


class Products:
    """The kernels in products/, compiled in a folder for one architecture, such as "sm_90"."""

    def __init__(self, folder: Path, architecture: str) -> None:
        object_file, library = folder / "products.o", folder / "products.so"
        command = cuda.compile_command(cuda.find_nvcc(), FOLDER / "products.cu", object_file, [architecture])
        build.run_compiler([*command, *cuda.STRICT], "nvcc")
        build.run_compiler([str(cuda.find_nvcc()), "-shared", "-o", str(library), str(object_file)], "nvcc")
        functions = ctypes.CDLL(str(library))
        self._multiply, self._gradients = functions.multiply_out, functions.sum_block_gradients
        for function in (self._multiply, self._gradients):
            function.restype, function.argtypes = ctypes.c_char_p, [*ARGUMENTS, ctypes.c_void_p]

    def multiply(self, blocks: Tensor, x: Tensor, tiles: int) -> Tensor:
        """Return the product of transposed blocks with x (N, D) on a device, in tiles of one of the shapes of TILES."""
        y = torch.empty_like(x)
        self._launch(self._multiply, arguments(blocks, x, y, tiles))
        return y

    def gradients(self, blocks: Tensor, x: Tensor, dy: Tensor) -> Tensor:
        """Return the gradient of the blocks, of their shape, by x and the gradient dy of the product, each (N, D)."""
        sums = blocks.new_empty(CHUNKS, *blocks.shape)
        self._launch(self._gradients, (x.data_ptr(), dy.data_ptr(), sums.data_ptr(), *sizes(blocks, x), CHUNKS))
        return sums.sum(0)

    def forward(self, blocks: Sequence[Tensor], x: Tensor, tiles: int) -> Tensor:
        """Apply products one after another to events (N, C, *spatial)."""
        flat = x.flatten(1)
        for of_stage in blocks:
            flat = self.multiply(of_stage, flat, tiles)
        return flat.view_as(x)

    def forward_backward(self, blocks: Sequence[Tensor], x: Tensor, tiles: int) -> tuple[Tensor, list[Tensor]]:
        """Return the gradients of the sum of all outputs by the events and by the blocks."""
        inputs = [x.flatten(1)]
        for of_stage in blocks:
            inputs.append(self.multiply(of_stage, inputs[-1], tiles))
        gradient, of_blocks = torch.ones_like(inputs.pop()), list[Tensor]()
        for of_stage, before in zip(reversed(blocks), reversed(inputs), strict=True):
            of_blocks.insert(0, self.gradients(of_stage, before, gradient))
            [turned] = transposed([of_stage.mT])
            gradient = self.multiply(turned, gradient, tiles)
        return gradient.view_as(x), of_blocks

    @staticmethod
    def _launch(function: Callable[..., bytes | None], given: tuple[int, ...]) -> None:
        fault = function(*given, torch.cuda.current_stream().cuda_stream)
        if fault is not None:
            raise RuntimeError(f"products.cu: {fault.decode()}")


def transposed(blocks: Iterable[Tensor]) -> list[Tensor]:
    """Return blocks with each matrix transposed in memory, as the kernel takes them."""
    return [of_stage.mT.contiguous().mT for of_stage in blocks]
