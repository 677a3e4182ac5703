"""Any permutation of any D in 2m - 1 stages; of 2^k entries, in a Benes network."""

import itertools
import math
import re

import pytest
import torch

from layers import UnsupportedShape
from layers.butterflies.permutations import benes_levels, butterfly_from_permutation, routed_stages
from layers.butterflies.stages import apply_stages, prime_factors, stages_of


def permuted(permutation, **options):
    """Return the indices of an event after the layer of a permutation of 2m - 1 stages, which it also undoes.

    Each stage consists of permutation matrices.
    """
    layer = butterfly_from_permutation(permutation, **options)
    if layer.mixed:
        assert len(layer.stages[0]) == 2 * len(prime_factors(layer.dim)) - 1
    else:
        assert [part.levels for part in layer.plan.parts] == [tuple(benes_levels(layer.dim))]
    x = torch.arange(layer.dim, dtype=torch.float32)
    y, log_det = layer(x.reshape(1, *layer.shape))
    assert log_det == 0
    assert torch.equal(layer.inverse(y).flatten(), x)
    if layer.dim <= 30:
        assert all(((matrix == 0) | (matrix == 1)).all() for _, matrix in layer.factors())
    return y.flatten().long().tolist()


def test_every_permutation_of_six():
    stages = stages_of(6)
    for permutation in itertools.permutations(range(6)):
        x = torch.arange(6.0)[:, None]
        for stage, matrices in zip([*stages, stages[0]], routed_stages(permutation, [2, 3]), strict=True):
            x = apply_stages([(stage, matrices)], x)
        assert x.flatten().tolist() == list(permutation)


def test_the_layers_of_every_permutation_of_four_and_refused_sizes():
    for permutation in itertools.permutations(range(4)):
        assert permuted(permutation) == list(permutation)
    message = "D = 74 has the prime factor 37, above the largest radix, 31; pad the event to 128 entries, and the perm"
    with pytest.raises(UnsupportedShape, match=message):
        butterfly_from_permutation(range(74))
    with pytest.raises(UnsupportedShape, match=re.escape("shape (3, 3) has 9 entries, the permutation 8")):
        butterfly_from_permutation(range(8), (3, 3))


@pytest.mark.parametrize("size", [1, 2, 6, 7, 12, 30, 784, 1024, 3072])
def test_the_layers_of_random_permutations(size):
    torch.manual_seed(0)
    random = [torch.randperm(size) for _ in range(20 if size < 10 else 2)]
    for permutation in (*random, torch.arange(size).flip(0), torch.arange(size)):
        assert permuted(permutation) == permutation.tolist()


@pytest.mark.parametrize("shape", [(2, 2, 4), (3, 4, 5)])
def test_an_event_shape(shape):
    rolled = torch.arange(math.prod(shape)).roll(5)
    assert permuted(rolled.int(), shape=shape) == rolled.tolist()


@pytest.mark.parametrize("permutation", [[0, 0], [1, 2], [0.0, 1.0], [[0, 1]], [-1, 0], []])
def test_invalid_permutations_are_refused(permutation):
    with pytest.raises(ValueError, match=re.escape(f"{permutation} is not a permutation; give each of 0, ..., D - 1")):
        butterfly_from_permutation(permutation)
