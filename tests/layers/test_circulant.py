import cmath
import math

import pytest
import torch

from layers.circulant import Circulant
from layers.spectral import Spectral


def by_definition(layer):
    """Return W for entries position by position, from Fourier sums: W[i, j] = a[(i - j) mod D]."""
    weight, size = layer.weight.tolist(), layer.dim
    turn = [cmath.exp(2j * math.pi * k / size) for k in range(size)]
    gains = [
        cmath.exp(sum(g * turn[-j * k % size] for j, g in enumerate(weight)) / math.sqrt(size)) for k in range(size)
    ]
    column = [sum(gain * turn[j * k % size] for k, gain in enumerate(gains)) / size for j in range(size)]
    assert all(abs(entry.imag) < 1e-12 for entry in column)
    return torch.tensor([[column[(i - j) % size].real for j in range(size)] for i in range(size)], dtype=torch.float64)


@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 2, 3), (1, 7), (2, 5), (3, 1)])
@torch.no_grad()
def test_against_the_definition(shape, perturbed):
    layer, x = perturbed(Circulant, shape, 0.5), torch.randn(2, *shape, dtype=torch.float64)
    weight = by_definition(layer)
    y, log_det = layer(x)
    signal, filtered = (events.movedim(1, -1).flatten(1) for events in (x, y))
    torch.testing.assert_close(filtered, signal @ weight.T)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(weight).logabsdet)
    torch.testing.assert_close(layer.inverse(y), x)


def test_it_commutes_with_shifts_of_positions_and_mixes_channels(perturbed):
    layer, x = perturbed(Circulant, (3, 6), 0.5), torch.randn(2, 3, 6, dtype=torch.float64)
    torch.testing.assert_close(layer(x.roll(1, 2))[0], layer(x)[0].roll(1, 2))
    assert (layer.dense() != 0).all()
    layer, spectral = perturbed(Circulant, (1, 6), 0.5), Spectral((1, 6)).double()
    with torch.no_grad():
        spectral.weight.copy_(layer.weight)
    torch.testing.assert_close(layer.dense(), spectral.dense())
