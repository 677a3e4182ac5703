"""Routing a permutation of any D = p_1 ... p_m through the stages p_1 ... p_m ... p_1 of a mixed radix.

The first and the last stage permute within groups of r = p_1 entries, D / r apart; between them are r networks on
D / r entries each. Every output group needs its r entries from r different networks, and every input group gives its r
entries to r different ones. Take output and input groups as the two sides of a graph, with one edge for each entry:
every vertex has r edges, and a colouring of the edges in which no two of one colour meet (Koenig: r colours are enough)
assigns each entry to a network. The task of a network is again a permutation, of D / r entries.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def routed_stages(permutation: Sequence[int], radices: Sequence[int]) -> list[Tensor]:
    """Stages of permutation matrices whose product takes x to y with y[i] = x[permutation[i]].

    Args:
        permutation: p, each of 0, ..., D - 1 once.
        radices: p_1, ..., p_m, whose product is D; m = 0 for D = 1.

    Returns:
        2m - 1 stages (none for m = 0), the first applied first, of radix p_1 ... p_m ... p_1: (D / r, r, r) each, as
        `layers.butterflies.stages.apply_stage` takes them.

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

    Args:
        edges: (left, right), each from 0 to `vertices` - 1.
        vertices: on each side.
        colours: at least as many as a vertex has edges.
    """
    # at[side][vertex][colour] is the edge there, or -1.
    at = [[[-1] * colours for _ in range(vertices)] for _ in range(2)]
    found = [0] * len(edges)
    for edge, (left, right) in enumerate(edges):
        ours, theirs = at[0][left].index(-1), at[1][right].index(-1)
        # The path from `right` whose edges have the colours ours, theirs, ours, ... cannot end in `left`, which lacks
        # `ours`; with the two exchanged along it, `right` lacks `ours` as well.
        path, side, vertex, colour = [], 1, right, ours
        while (crossed := at[side][vertex][colour]) >= 0:
            path.append(crossed)
            side, colour = 1 - side, ours + theirs - colour
            vertex = edges[crossed][side]
        for crossed in path:
            for end in range(2):
                at[end][edges[crossed][end]][found[crossed]] = -1
        for crossed in path:
            found[crossed] = ours + theirs - found[crossed]
        for crossed in path:
            for end in range(2):
                at[end][edges[crossed][end]][found[crossed]] = crossed
        found[edge] = ours
        at[0][left][ours] = at[1][right][ours] = edge
    return found


def _matrices(networks: list[list[int]], radix: int) -> Tensor:
    """Return maps within groups, from network[i] to entry i of a network, as matrices (groups, radix, radix)."""
    stride = len(networks[0]) // radix
    sources = torch.tensor(networks).view(len(networks), radix, stride).transpose(1, 2) // stride
    return torch.nn.functional.one_hot(sources.flatten(0, 1), radix).to(torch.get_default_dtype())
