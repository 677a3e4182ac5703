import pytest
import torch

from layers.linalg.transforms import dct, dct_matrix, inverse_dct
from layers.spectral import Spectral


def perturbed(shape, transform):
    torch.manual_seed(0)
    layer = Spectral(shape, transform=transform).double()
    with torch.no_grad():
        layer.weight.add_(0.5 * torch.randn_like(layer.weight))
    return layer


@pytest.mark.parametrize("shape", [(2, 4, 6), (3, 5, 3), (2, 9)])
def test_the_fft_is_a_circular_convolution_of_each_channel(shape):
    layer = perturbed(shape, "fft")
    x = torch.randn(2, *shape, dtype=torch.float64)
    axes = tuple(range(2, x.ndim))
    for axis in axes:
        torch.testing.assert_close(layer(x.roll(1, axis))[0], layer(x)[0].roll(1, axis))
    only = x.clone()
    only[:, 1:] = 0
    torch.testing.assert_close(layer(only)[0][:, 0], layer(x)[0][:, 0])
    assert (layer.dense() != 0).sum() > layer.dim  # the kernel is larger than one pixel


@pytest.mark.parametrize("shape", [(1, 4, 6), (2, 7)])
def test_the_dct_is_a_symmetric_convolution(shape):
    """On the reflected event it is a circular convolution with an even kernel."""
    layer = perturbed(shape, "dct")
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
