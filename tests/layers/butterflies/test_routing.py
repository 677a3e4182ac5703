"""Any permutation of any D in 2m - 1 stages."""

import itertools
import math
import random

import pytest
import torch

from layers.butterflies.permutations import butterfly_from_permutation, edge_colours, routed_stages
from layers.butterflies.stages import apply_stages, prime_factors, stages_of


def applied(permutation, radices):
    """Return the entries after the stages, and check that each consists of permutation matrices."""
    size = len(permutation)
    strides = stages_of(size)
    stages = routed_stages(permutation, radices)
    assert len(stages) == max(2 * len(radices) - 1, 0)
    x = torch.arange(float(size))[:, None]
    for matrices, stage in zip(stages, strides + strides[-2::-1], strict=True):
        assert matrices.shape == (size // stage.radix, stage.radix, stage.radix)
        ones = torch.ones(size // stage.radix, stage.radix)
        assert ((matrices == 0) | (matrices == 1)).all()
        assert torch.equal(matrices.sum(1), ones) and torch.equal(matrices.sum(2), ones)
        x = apply_stages([(stage, matrices)], x)
    return x[:, 0].long().tolist()


def test_every_permutation_of_six():
    for permutation in itertools.permutations(range(6)):
        assert applied(list(permutation), [2, 3]) == list(permutation)


@pytest.mark.parametrize(("size", "stages"), [(1, 0), (7, 1), (6, 3), (12, 5), (30, 5), (784, 11), (3072, 21)])
def test_random_permutations(size, stages):
    torch.manual_seed(0)
    radices = prime_factors(size)
    assert max(2 * len(radices) - 1, 0) == stages
    for permutation in (torch.randperm(size), torch.arange(size).flip(0), torch.arange(size)):
        assert applied(permutation.tolist(), radices) == permutation.tolist()


@pytest.mark.parametrize("size", [6, 12, 30, 784, 3072])
def test_the_layer_of_a_permutation(size):
    """Exactly, with log-det 0, and back; 2m - 1 stages."""
    torch.manual_seed(0)
    permutation = torch.randperm(size)
    layer = butterfly_from_permutation(permutation)
    assert len(layer.stages[0]) == 2 * len(prime_factors(size)) - 1
    x = torch.arange(size, dtype=torch.float32).reshape(1, 1, size)
    y, log_det = layer(x)
    assert torch.equal(y.flatten().long(), permutation)
    assert log_det == 0
    assert torch.equal(layer.inverse(y), x)


def test_an_event_shape():
    rolled = torch.arange(60).roll(7)
    layer = butterfly_from_permutation(rolled, (3, 4, 5))
    assert layer(torch.arange(60.0).view(1, 3, 4, 5))[0].flatten().long().tolist() == rolled.tolist()


@pytest.mark.parametrize(("vertices", "colours"), [(1, 3), (2, 2), (5, 3), (40, 7), (300, 2)])
def test_edge_colours(vertices, colours):
    """For regular multigraphs made of matchings, in any order of edges: each vertex has every colour once."""
    shuffle = random.Random(0)
    for _ in range(5):
        matchings = [shuffle.sample(range(vertices), vertices) for _ in range(colours)]
        edges = [(left, right) for matching in matchings for left, right in enumerate(matching)]
        shuffle.shuffle(edges)
        chosen = edge_colours(edges, vertices, colours)
        for side in range(2):
            seen = {(edge[side], colour) for edge, colour in zip(edges, chosen, strict=True)}
            assert len(seen) == vertices * colours == len(edges)
            assert math.prod(colour < colours for _, colour in seen)
