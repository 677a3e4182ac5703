import itertools
import math

import pytest
import torch

from layers import free_parameters
from layers.cinc import CInC
from layers.kernels import load as kernels


def by_definition(layer):
    """Return W: y[p] = sum over taps t of A[t] x[p - t], where A[0] has nothing above its diagonal."""
    channels, spatial, taps = layer.channels, layer.shape[1:], layer.kernel_size
    weight = torch.zeros(channels, *spatial, channels, *spatial, dtype=torch.float64)
    for place in itertools.product(*map(range, spatial)):
        for tap in itertools.product(range(taps), repeat=len(spatial)):
            source = tuple(p - t for p, t in zip(place, tap, strict=True))
            if min(source) >= 0:
                for out, inp in itertools.product(range(channels), repeat=2):
                    if any(tap) or inp <= out:
                        weight[(out, *place, inp, *source)] = layer.weight[(out, inp, *tap)]
    return weight.reshape(layer.dim, layer.dim)


@pytest.mark.parametrize("shape", [(2, 4, 5), (3, 2, 4), (1, 3, 3), (3, 7)])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 6])
@torch.no_grad()
def test_against_the_definition(shape, kernel_size, monkeypatch, perturbed):
    layer = perturbed(CInC, shape, 0.3 / kernel_size ** (len(shape) - 1), kernel_size=kernel_size)
    x = torch.randn(2, *shape, dtype=torch.float64)
    weight = by_definition(layer)
    y, log_det = layer(x)
    torch.testing.assert_close(y.flatten(1), x.flatten(1) @ weight.T)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(weight).logabsdet)
    torch.testing.assert_close(layer.dense(), weight)
    torch.testing.assert_close(layer.inverse(y), x)
    monkeypatch.setattr(kernels, "serve", lambda *tensors: False)
    torch.testing.assert_close(layer.inverse(y), x)


def test_a_zero_on_the_diagonal_of_the_first_tap_is_singular():
    layer = CInC((2, 4, 4))
    with torch.no_grad():
        layer.weight[1, 1, 0, 0] = 0
    assert layer.log_det() == -math.inf
    assert free_parameters(layer) == 2 * 2 * 9 - 1
