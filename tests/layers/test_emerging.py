import itertools

import pytest
import torch
import torch.nn.functional as F

from layers.emerging import Emerging
from layers.linalg import causal

pytestmark = pytest.mark.usefixtures("path")

# One channel, one pixel, one row, one column, odd and rectangular sizes; several blocks a row (40, 7 columns).
SHAPES = [(1, 1, 1), (2, 4, 4), (3, 5, 4), (2, 1, 9), (2, 9, 1), (1, 3, 7), (40, 2, 7), (1, 6), (3, 1), (4, 60)]
KERNELS = [1, 3, 9]
EPS = {torch.float32: torch.finfo(torch.float32).eps, torch.float64: torch.finfo(torch.float64).eps}


def same_convolution(x, weight):
    convolve = F.conv2d if x.ndim == 4 else F.conv1d
    return convolve(x, weight, padding=weight.shape[-1] // 2)


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
@pytest.mark.parametrize("shape", [(3, 4, 4), (1, 2, 2), (3, 8)])
def test_masks(shape, kernel_size):
    layer, m = Emerging(shape, kernel_size=kernel_size), kernel_size // 2
    axes = len(shape) - 1
    expected = torch.zeros(layer.weight1.shape, dtype=torch.bool)
    for out, inp in itertools.product(range(shape[0]), repeat=2):
        for tap in itertools.product(range(kernel_size), repeat=axes):
            at_centre = all(t == m for t in tap)
            expected[(out, inp, *tap)] = inp <= out if at_centre else all(t >= m for t in tap)
    assert torch.equal(layer.weight1_mask, expected)
    assert torch.equal(layer.weight2_mask, expected.flip(tuple(range(expected.ndim))))


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_it_is_two_masked_convolutions(shape, case, gentle):
    for kernel_size in KERNELS:
        with case(kernel_size=kernel_size):
            layer = gentle(shape, kernel_size)
            x = torch.randn(3, *shape, dtype=torch.float64)
            between = same_convolution(x, layer.weight1 * layer.weight1_mask)
            after = same_convolution(between, layer.weight2 * layer.weight2_mask)
            torch.testing.assert_close(layer(x)[0], after + layer.bias.view(-1, *[1] * (x.ndim - 2)))


@pytest.mark.parametrize(
    ("length", "std", "dtype"),
    [(256, 0.1, torch.float64), (10, 0.1, torch.float64), (256, 0.05, torch.float32), (10, 0.1, torch.float32)],
)
@torch.no_grad()
def test_wide_kernel_on_sequences(length, std, dtype, perturbed):
    layer = perturbed(Emerging, (4, length), std, kernel_size=51)
    matrix = layer.double().dense()
    condition = float(torch.linalg.cond(matrix, p=1))
    layer = layer.to(dtype)
    x = torch.randn(2, 4, length, dtype=dtype)
    y, log_det = layer(x)
    error = float((layer.inverse(y) - x).norm() / x.norm())
    assert error <= max(condition, 10) * EPS[dtype]
    torch.testing.assert_close(log_det.double(), torch.linalg.slogdet(matrix)[1], rtol=1e-4, atol=1e-4)


def test_initialisation():
    torch.manual_seed(0)
    layer = Emerging((4, 64), kernel_size=51)
    for weight, mask in ((layer.weight1, layer.weight1_mask), (layer.weight2, layer.weight2_mask)):
        assert (weight[~mask] == 0).all()
        noise = weight.detach().clone()
        noise[..., 25] -= torch.eye(4)
        assert 0.018 < float(noise[mask].std()) < 0.022
        assert float(noise[mask].abs().max()) < 0.1
    assert (layer.bias == 0).all() and Emerging((4, 64), bias=False).bias is None


@pytest.mark.parametrize(
    ("shape", "kernel_size"), [((2, 5, 7), 3), ((2, 4, 7), 9), ((3, 6, 5), 5), ((3, 1, 1), 5), ((2, 23), 9)]
)
@torch.no_grad()
def test_inverse_is_exact_for_every_block_size(shape, kernel_size, case, monkeypatch, perturbed):
    for unknowns in (1, 6, 12, 1000):
        with case(unknowns=unknowns):
            monkeypatch.setattr(causal, "BLOCK_UNKNOWNS", unknowns)
            layer = perturbed(Emerging, shape, 0.1, kernel_size=kernel_size)
            x = torch.randn(4, *shape, dtype=torch.float64)
            torch.testing.assert_close(layer.inverse(layer(x)[0]), x, rtol=1e-8, atol=1e-8)
