import itertools
import re

import pytest
import torch

from layers import UnsupportedShape
from layers.butterflies.permutations import benes_levels, butterfly_from_permutation


def permuted(permutation, **options):
    """Return the indices of an event after the layer of a permutation."""
    layer = butterfly_from_permutation(permutation, **options)
    (part,) = layer.plan.parts
    assert list(part.levels) == benes_levels(layer.dim)
    x = torch.arange(layer.dim, dtype=torch.float32)
    y, log_det = layer(x.reshape(1, *layer.shape))
    assert log_det == 0
    assert torch.equal(layer.inverse(y).flatten(), x)
    return y.flatten().long().tolist()


def test_every_permutation_of_four():
    for permutation in itertools.permutations(range(4)):
        assert permuted(permutation) == list(permutation)


@pytest.mark.parametrize("size", [1, 2, 1024])
def test_random_permutations(size):
    torch.manual_seed(0)
    for _ in range(20):
        permutation = torch.randperm(size)
        assert permuted(permutation) == permutation.tolist()


def test_a_number_of_factors():
    assert [len(benes_levels(2**k)) for k in range(6)] == [0, 1, 3, 5, 7, 9]
    assert benes_levels(8) == [1, 2, 3, 2, 1]


def test_an_event_shape(rotated):
    rotated = torch.arange(16).roll(5)
    assert permuted(rotated.int(), shape=(2, 2, 4)) == rotated.tolist()


@pytest.mark.parametrize("permutation", [[0, 0], [1, 2], [0.0, 1.0], [[0, 1]], [-1, 0], []])
def test_invalid_permutations_are_refused(permutation):
    with pytest.raises(ValueError, match=re.escape(f"{permutation} is not a permutation; give each of 0, ..., D - 1")):
        butterfly_from_permutation(permutation)


def test_refuses_a_size():
    message = "D = 74 has the prime factor 37, above the largest radix, 31; pad the event to 128 entries, and the perm"
    with pytest.raises(UnsupportedShape, match=message):
        butterfly_from_permutation(range(74))
    with pytest.raises(UnsupportedShape, match=re.escape("shape (3, 3) has 9 entries, the permutation 8")):
        butterfly_from_permutation(range(8), (3, 3))
