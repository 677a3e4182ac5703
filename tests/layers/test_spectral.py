import cmath
import math

import pytest
import torch
from compared import follows

from layers.circulant import Circulant
from layers.linalg.transforms import dct, dct_matrix, inverse_dct
from layers.spectral import Spectral


@pytest.mark.parametrize("shape", [(2, 4, 6), (3, 5, 3), (2, 9)])
def test_the_fft_is_a_circular_convolution_of_each_channel(shape, perturbed):
    layer = perturbed(Spectral, shape, 0.5, transform="fft")
    x = torch.randn(2, *shape, dtype=torch.float64)
    axes = tuple(range(2, x.ndim))
    for axis in axes:
        torch.testing.assert_close(layer(x.roll(1, axis))[0], layer(x)[0].roll(1, axis))
    only = x.clone()
    only[:, 1:] = 0
    torch.testing.assert_close(layer(only)[0][:, 0], layer(x)[0][:, 0])
    assert (layer.dense() != 0).sum() > layer.dim  # the kernel is larger than one pixel


@pytest.mark.parametrize("shape", [(1, 4, 6), (2, 7)])
def test_the_dct_is_a_symmetric_convolution(shape, perturbed):
    """On the reflected event it is a circular convolution with an even kernel."""
    layer = perturbed(Spectral, shape, 0.5, transform="dct")
    x = torch.randn(1, *shape, dtype=torch.float64)
    axes = tuple(range(2, x.ndim))

    def reflected(image):
        for axis in axes:
            image = torch.cat([image, image.flip(axis)], axis)
        return image

    response = torch.fft.fftn(reflected(layer(x)[0]), dim=axes) / torch.fft.fftn(reflected(x), dim=axes)
    quarter = (slice(None), slice(None), *(slice(0, size) for size in shape[1:]))
    torch.testing.assert_close(response[quarter][0], layer.weight.exp().to(response.dtype))


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9])
def test_the_cosine_transform_is_its_definition(size):
    matrix = dct_matrix(size)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(size, dtype=torch.float64))
    x = torch.randn(4, size, 3, dtype=torch.float64)
    torch.testing.assert_close(dct(x.mT, 1).mT, matrix @ x)
    torch.testing.assert_close(inverse_dct(dct(x, 2), 2), x)
    torch.testing.assert_close(dct(x, 2), matrix @ x @ dct_matrix(3).T)


def circulant_by_definition(layer):
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
def test_circulant_follows_its_definition(shape, perturbed):
    layer = perturbed(Circulant, shape, 0.5)
    places = torch.arange(layer.dim).view(shape).movedim(0, -1).flatten().argsort()
    follows(layer, circulant_by_definition(layer)[places][:, places])


def test_circulant_commutes_with_shifts_of_positions_and_mixes_channels(perturbed):
    layer, x = perturbed(Circulant, (3, 6), 0.5), torch.randn(2, 3, 6, dtype=torch.float64)
    torch.testing.assert_close(layer(x.roll(1, 2))[0], layer(x)[0].roll(1, 2))
    assert (layer.dense() != 0).all()
    layer, spectral = perturbed(Circulant, (1, 6), 0.5), Spectral((1, 6)).double()
    with torch.no_grad():
        spectral.weight.copy_(layer.weight)
    torch.testing.assert_close(layer.dense(), spectral.dense())
