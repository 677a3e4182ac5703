"""Permutations as butterflies: routed Clos networks, of which a Benes network is the one of radix 2.

A permutation of D = p_1 ... p_m entries is routed through the stages p_1 ... p_m ... p_1 of a mixed radix. The first
and the last stage permute within groups of r = p_1 entries, D / r apart; between them are r networks on D / r entries
each. Every output group needs its r entries from r different networks, and every input group gives its r entries to r
different ones. Take output and input groups as the two sides of a graph, with one edge for each entry: every vertex has
r edges, and a colouring of the edges in which no two of one colour meet (Koenig: r colours are enough) assigns each
entry to a network. The permutation of a network, of D / r entries, is routed likewise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import cast

import torch
from torch import Tensor

from layers.base import UnsupportedShape
from layers.butterflies.stages import LARGEST_PRIME, PLUStages, prime_factors
from layers.butterfly import Butterfly
from layers.chain import Chain


def butterfly_from_permutation(permutation: Sequence[int] | Tensor, shape: tuple[int, ...] | None = None) -> Butterfly:
    """Return the butterfly layer that permutes: y = x[p], entry i of the output is entry p[i] of the input, exactly.

    On 2^k entries its levels are 1, ..., k, ..., 1: 2k - 1 factors, one fewer than there and back, and every 2x2 matrix
    is the identity or a swap. On any other D = p_1 ... p_m it has the 2m - 1 stages of a mixed radix there and back,
    of p_i x p_i permutation matrices. The weights are parameters like any others.

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
    layer = Butterfly(shape, bi_direction=True) if size & (size - 1) else Butterfly(shape, levels=benes_levels(size))
    if layer.remark is not None:
        prime, larger = max(prime_factors(size)), 1 << size.bit_length()
        raise UnsupportedShape(
            f"butterfly_from_permutation: D = {size} has the prime factor {prime}, above the largest radix, "
            f"{LARGEST_PRIME}; pad the event to {larger} entries, and the permutation by p[i] = i from {size} to "
            f"{larger - 1}"
        )
    stages = iter(routed_stages(p.tolist(), prime_factors(size)))
    for run in [layer] if layer.product is None else cast(Chain, layer.product):
        if isinstance(run, PLUStages):
            run.set_matrices(list(islice(stages, sum(map(len, run.parts)))))
        elif isinstance(run, Butterfly) and run.plan.factors:
            matrices = torch.cat(list(islice(stages, len(run.plan.factors))))
            with torch.no_grad():
                run.weight.copy_(matrices.permute(1, 2, 0))
    return layer


def benes_levels(size: int) -> list[int]:
    """Return 1, ..., k, ..., 1 for size = 2^k: the levels of a Benes network, the first applied first."""
    k = size.bit_length() - 1
    return [*range(1, k + 1), *range(k - 1, 0, -1)]


def _shown(permutation: Sequence[int] | Tensor) -> str:
    entries = permutation.tolist() if isinstance(permutation, Tensor) else list(permutation)
    return str(entries) if len(entries) <= 16 else f"[{', '.join(map(str, entries[:16]))}, ...]"


def routed_stages(permutation: Sequence[int], radices: Sequence[int]) -> list[Tensor]:
    """Return stages of permutation matrices whose product takes x to y with y[i] = x[permutation[i]].

    Args:
        permutation: p, each of 0, ..., D - 1 once.
        radices: p_1, ..., p_m, whose product is D; m = 0 for D = 1.

    Returns:
        2m - 1 stages (none for m = 0), the first applied first, of radix p_1 ... p_m ... p_1: (D / r, r, r) each, as
        `layers.butterflies.stages.apply_stages` takes them.

    In O(D) colourings of an edge for each radix but the last; one walks along a path, short in general and D / r steps
    at worst. Source: Slepian (1952), Duguid (1959), on rearrangeable Clos networks.
    """
    networks, first, last = [list(permutation)], [], []
    for radix in radices[:-1]:
        pieces = [_route(network, radix) for network in networks]
        first.append(_matrices([before for before, _, _ in pieces], radix))
        last.append(_matrices([after for _, _, after in pieces], radix))
        networks = [inner for _, inners, _ in pieces for inner in inners]
    middle = [_matrices(networks, radices[-1])] if radices else []
    return [*first, *middle, *reversed(last)]


def _route(permutation: list[int], radix: int) -> tuple[list[int], list[list[int]], list[int]]:
    """Return the first stage, the networks between and the last stage, as indices of the inputs of their entries."""
    size = len(permutation)
    stride = size // radix
    edges = [(out % stride, source % stride) for out, source in enumerate(permutation)]
    first, last = [0] * size, [0] * size
    networks = [[0] * stride for _ in range(radix)]
    for out, ((group, origin), network) in enumerate(zip(edges, edge_colours(edges, stride, radix), strict=True)):
        first[network * stride + origin] = permutation[out]
        networks[network][group] = origin
        last[out] = network * stride + group
    return first, networks, last


def edge_colours(edges: Sequence[tuple[int, int]], vertices: int, colours: int) -> list[int]:
    """Return a colour for every edge of a bipartite multigraph, so that no two edges of a colour meet in a vertex.

    An edge is (left, right), with `vertices` on each side; there are at least as many colours as a vertex has edges.
    """
    # at[side][vertex][colour] is the edge there, or -1.
    at = [[[-1] * colours for _ in range(vertices)] for _ in range(2)]
    chosen = [0] * len(edges)
    for edge, (left, right) in enumerate(edges):
        free_left, free_right = at[0][left].index(-1), at[1][right].index(-1)
        # The path from `right` whose edges have the colours free_left, free_right, free_left, ... cannot end in `left`,
        # where free_left is unused; with the two exchanged along it, free_left is unused in `right` as well.
        path, side, vertex, colour = [], 1, right, free_left
        while (crossed := at[side][vertex][colour]) >= 0:
            path.append(crossed)
            side, colour = 1 - side, free_left + free_right - colour
            vertex = edges[crossed][side]
        for crossed in path:
            for end in range(2):
                at[end][edges[crossed][end]][chosen[crossed]] = -1
        for crossed in path:
            chosen[crossed] = free_left + free_right - chosen[crossed]
        for crossed in path:
            for end in range(2):
                at[end][edges[crossed][end]][chosen[crossed]] = crossed
        chosen[edge] = free_left
        at[0][left][free_left] = at[1][right][free_left] = edge
    return chosen


def _matrices(networks: list[list[int]], radix: int) -> Tensor:
    """Return maps within groups, from network[i] to entry i of a network, as matrices (groups, radix, radix)."""
    stride = len(networks[0]) // radix
    sources = torch.tensor(networks).view(len(networks), radix, stride).transpose(1, 2) // stride
    return torch.nn.functional.one_hot(sources.flatten(0, 1), radix).to(torch.get_default_dtype())
