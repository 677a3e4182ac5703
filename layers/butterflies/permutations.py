"""Permutations as butterflies: a Benes network for powers of two, a routed Clos network for every other D."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from layers.base import UnsupportedShape
from layers.butterflies.routing import routed_stages
from layers.butterflies.stages import LARGEST_PRIME, prime_factors
from layers.butterfly import Butterfly


def butterfly_from_permutation(permutation: Sequence[int] | Tensor, shape: tuple[int, ...] | None = None) -> Butterfly:
    """Return the butterfly layer that permutes: y = x[p], entry i of the output is entry p[i] of the input, exactly.

    On 2^k entries its levels are 1, ..., k, ..., 1: 2k - 1 factors, one fewer than there and back, and every 2x2 matrix
    is the identity or a swap. On any other D = p_1 ... p_m it has the 2m - 1 stages of a mixed radix there and back,
    of p_i x p_i permutation matrices (`layers.butterflies.routing`). The weights are parameters like any others.

    Args:
        permutation: p, each of 0, ..., D - 1 once; D without a prime factor above 31.
        shape: the event shape, of D entries, permuted in row-major order; None: (1, D).

    Raises:
        ValueError: p is not a permutation.
        UnsupportedShape: D has a prime factor above 31, or `shape` does not have D entries.

    Source: Benes (1965); Slepian (1952) and Duguid (1959) for any radix; that butterflies hold every permutation: Dao
    et al. (ICLR 2020).
    """
    p = torch.as_tensor(permutation)
    whole = p.ndim == 1 and len(p) > 0 and not p.is_floating_point()
    p = p.long()
    if not whole or not torch.equal(p.sort().values, torch.arange(len(p), device=p.device)):
        raise ValueError(
            f"butterfly_from_permutation: {_shown(permutation)} is not a permutation; give each of 0, ..., D - 1 once"
        )
    size = len(p)
    shape = (1, size) if shape is None else shape
    if math.prod(shape) != size:
        raise UnsupportedShape(
            f"butterfly_from_permutation: shape {shape} has {math.prod(shape)} entries, the permutation {size}; "
            "use a shape with as many"
        )
    if size & (size - 1):
        return _routed(p.tolist(), shape)
    layer = Butterfly(shape, levels=benes_levels(size))
    swap = benes_switches(p).flatten().to(layer.weight)
    with torch.no_grad():
        layer.weight.copy_(torch.stack((torch.stack((1 - swap, swap)), torch.stack((swap, 1 - swap)))))
    return layer


def _routed(permutation: list[int], shape: tuple[int, ...]) -> Butterfly:
    """Return the layer of a permutation of a D that is not a power of two."""
    layer = Butterfly(shape, bi_direction=True)
    if layer.mixed is None or len(layer.mixed.sizes) > 1:
        prime, larger = max(prime_factors(layer.dim)), 1 << layer.dim.bit_length()
        raise UnsupportedShape(
            f"butterfly_from_permutation: D = {layer.dim} has the prime factor {prime}, above the largest radix, "
            f"{LARGEST_PRIME}; pad the event to {larger} entries, and the permutation by p[i] = i from {layer.dim} to "
            f"{larger - 1}"
        )
    layer.mixed.set_stages(routed_stages(permutation, prime_factors(layer.dim)))
    return layer


def benes_levels(size: int) -> list[int]:
    """Return 1, ..., k, ..., 1 for size = 2^k: the levels of a Benes network, the first applied first."""
    k = size.bit_length() - 1
    return [*range(1, k + 1), *range(k - 1, 0, -1)]


def benes_switches(permutations: Tensor) -> Tensor:
    """Return the pairs that swap, so that the factors of `benes_levels` together take x to x[p].

    The first and the last factor are one switch for each pair (i, i + D / 2). Between them are a Benes network on
    each half of the entries: the two of an output pair have to come from different halves, and the two of an input
    pair to go to different ones. Both outputs' and inputs' pairs as edges make a graph of even cycles, whose
    2-colouring assigns the halves. It is found for all cycles at once by pointer doubling, in O(D k^2).

    Args:
        permutations: p, (..., D) with D = 2^k.

    Returns:
        (..., 2k - 1, D / 2) booleans, the pairs of a factor in the order of its weight.
    """
    size = permutations.shape[-1]
    p = permutations.reshape(-1, 1, size)  # (networks, blocks, entries of a block): every block is a smaller network
    first, last = [], []
    while p.shape[-1] > 2:
        half = p.shape[-1] // 2
        inverse = p.argsort(-1)
        upper = _outputs_from_upper_half(p, inverse)
        upper_inputs = upper.gather(-1, inverse)
        first.append(~upper_inputs[..., :half].flatten(1))
        last.append(~upper[..., :half].flatten(1))
        place = torch.arange(half, device=p.device)
        from_upper = torch.where(upper[..., :half], place, place + half)
        p = torch.stack((p.gather(-1, from_upper), p.gather(-1, from_upper ^ half)), -2).flatten(1, 2) % half
    middle = [p[..., 0].flatten(1) == 1] if size > 1 else []
    factors = [*first, *middle, *reversed(last)]
    switches = torch.stack(factors, 1) if factors else p.new_zeros((len(p), 0, 0), dtype=torch.bool)
    return switches.reshape(*permutations.shape[:-1], len(factors), size // 2)


def _outputs_from_upper_half(p: Tensor, inverse: Tensor) -> Tensor:
    """For each output (..., D), whether its entry goes through the network on the upper half."""
    size = p.shape[-1]
    half = size // 2
    # Over the input pair, then over the output pair: two edges further along the cycle, the same colour.
    following = inverse.gather(-1, p ^ half) ^ half
    smallest = torch.arange(size, device=p.device).expand_as(p)
    for _ in range(size.bit_length() - 2):  # such a half of a cycle has at most D / 2 outputs
        smallest = torch.minimum(smallest, smallest.gather(-1, following))
        following = following.gather(-1, following)
    return smallest < smallest.roll(half, -1)


def _shown(permutation: Sequence[int] | Tensor) -> str:
    entries = permutation.tolist() if isinstance(permutation, Tensor) else list(permutation)
    return str(entries) if len(entries) <= 16 else f"[{', '.join(map(str, entries[:16]))}, ...]"
