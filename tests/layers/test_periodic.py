import itertools

import pytest
import torch
import torch.nn.functional as F

from layers import periodic
from layers.linalg import convolution
from layers.periodic import Periodic

SHAPES = [(1, 1, 1), (2, 4, 4), (3, 5, 4), (2, 1, 9), (2, 9, 1), (1, 3, 7), (20, 2, 3), (1, 6), (3, 1), (4, 61)]
KERNELS = [1, 2, 3, 4, 5, 8]


@pytest.fixture
def made(perturbed):
    """Return a function that makes a layer with noise on its orthogonal initial weights, still well conditioned."""

    def build(shape, kernel_size):
        taps = kernel_size ** (len(shape) - 1)
        return perturbed(Periodic, shape, 0.3 / (shape[0] * taps) ** 0.5, kernel_size=kernel_size)

    return build


def by_shifting(layer, x):
    """Apply the definition: every tap weighs a shifted copy of the event."""
    y = layer.bias.view(-1, *[1] * (x.ndim - 2)).expand_as(x).clone()
    centre = (layer.kernel_size - 1) // 2
    axes = tuple(range(2, x.ndim))
    for tap in itertools.product(range(layer.kernel_size), repeat=len(axes)):
        shifted = torch.roll(x, [centre - t for t in tap], axes)
        y += torch.einsum("oi,ni...->no...", layer.weight[(..., *tap)], shifted)
    return y


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_forward(shape, way, case, monkeypatch, made):
    for kernel_size, largest_direct in itertools.product(KERNELS, (0, 100)):  # by FFT, and directly
        with case(kernel_size=kernel_size, largest_direct=largest_direct):
            monkeypatch.setattr(periodic, "LARGEST_DIRECT", largest_direct)
            layer = made(shape, kernel_size)
            x = torch.randn(3, *shape, dtype=torch.float64)
            torch.testing.assert_close(layer(x)[0], by_shifting(layer, x))


@pytest.mark.parametrize("spatial", [*itertools.product([1, 2, 3], [1, 2, 3, 4, 5]), (1,), (2,), (3,), (4,), (5,)])
@torch.no_grad()
def test_every_frequency_counts_once(spatial, way):
    """Far from orthogonal, where the determinants of the frequencies differ."""
    for kernel_size in (2, 3, 6):
        torch.manual_seed(kernel_size)
        layer = Periodic((2, *spatial), kernel_size=kernel_size).double()
        layer.weight.normal_()
        log_det = layer(torch.zeros(1, 2, *spatial, dtype=torch.float64))[1]
        torch.testing.assert_close(log_det, torch.linalg.slogdet(layer.dense())[1])


@pytest.mark.parametrize(
    ("shape", "kernel_size"), [((3, 32, 32), 3), ((12, 16, 16), 5), ((48, 8, 8), 3), ((4, 512), 51), ((4, 10), 51)]
)
@torch.no_grad()
def test_float32(shape, kernel_size, made):
    layer = made(shape, kernel_size).float()
    x = torch.randn(2, *shape)
    y, log_det = layer(x)
    torch.testing.assert_close(layer.inverse(y), x, rtol=1e-4, atol=1e-4)
    assert log_det.dtype == y.dtype == torch.float32
    exact = layer.double()(x.double())
    torch.testing.assert_close(y.double(), exact[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(log_det.double(), exact[1], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("shape", "kernel_size"), [((16, 4, 6), 3), ((16, 4, 6), 4), ((16, 9), 51), ((16, 9), 2)])
def test_initialisation(shape, kernel_size):
    torch.manual_seed(0)
    layer = Periodic(shape, kernel_size=kernel_size)
    taps = layer.weight.detach().flatten(2)
    centre = (kernel_size - 1) // 2
    at_centre = centre * kernel_size + centre if len(shape) == 3 else centre
    singular = torch.linalg.svdvals(taps[..., at_centre])
    assert 0.75 < float(singular.min()) < float(singular.max()) < 1.25
    others = torch.cat([taps[..., :at_centre], taps[..., at_centre + 1 :]], dim=-1)
    assert 0.017 < float(others.std()) < 0.023
    assert (layer.bias == 0).all()
    assert Periodic(shape, kernel_size=kernel_size, bias=False).bias is None


@pytest.mark.parametrize("most_filtered", [1, 300, 2**17])  # one event at a time, two, or all
@pytest.mark.parametrize("batch", [1, 19, 20, 21])
@torch.no_grad()
def test_inverse_of_few_and_of_many_events(batch, most_filtered, monkeypatch, made):
    """Fewer events than channels are solved, more are multiplied by the inverse."""
    monkeypatch.setattr(periodic, "MOST_FILTERED", most_filtered)
    layer = made((20, 2, 3), 3)
    x = torch.randn(batch, 20, 2, 3, dtype=torch.float64)
    y = layer(x)[0]
    torch.testing.assert_close(layer.inverse(y), x)
    torch.testing.assert_close(layer.inverter()(y), x)


@pytest.mark.parametrize("shape", [(2, 5, 4), (3, 6), (2, 1, 9)])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 4])
@pytest.mark.parametrize("least_interleaved", [0, 2**20])
@torch.no_grad()
def test_spectrum_of_few_taps_is_that_of_the_whole_kernel(shape, kernel_size, least_interleaved, monkeypatch, made):
    monkeypatch.setattr(periodic, "LEAST_INTERLEAVED", least_interleaved)
    layers = []
    for largest_direct in (0, 16):
        monkeypatch.setattr(periodic, "LARGEST_DIRECT", largest_direct)
        layers.append(made(shape, kernel_size))
    transformed, summed = (layer._spectrum() for layer in layers)
    torch.testing.assert_close(summed, transformed, rtol=1e-13, atol=1e-13)


def test_derivatives_are_those_of_torchs_padding(monkeypatch):
    monkeypatch.setattr(convolution, "LEAST_ENTRIES", 0)
    torch.manual_seed(0)
    for shape in ((2, 2, 5), (2, 1, 3, 4)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for before, after in ((0, 0), (1, 2), (3, 0)):

            def wrap(x, before=before, after=after):
                return convolution.wrapped(x, before, after)

            expected = F.pad(x, [before, after] * (x.ndim - 2), mode="circular")
            weights = torch.randn_like(expected)
            assert torch.equal(wrap(x), expected)
            gradient, reference = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (wrap(x), expected))
            torch.testing.assert_close(gradient, reference)
            assert torch.autograd.gradcheck(wrap, x, check_forward_ad=True, check_batched_grad=True)
            assert torch.autograd.gradgradcheck(wrap, x)
