"""CInC, a convolution padded at one corner, and Inverse-Flow, the inverse of one, against their definition."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from layers import free_parameters
from layers.cinc import CInC
from layers.inverse_flow import InverseFlow

pytestmark = pytest.mark.usefixtures("path")


def by_definition(layer):
    """Return M: y[p] = sum over taps t of A[t] x[p - t]; A[0] is lower triangular, of Inverse-Flow with ones in it."""
    channels, spatial, unit = layer.channels, layer.shape[1:], isinstance(layer, InverseFlow)
    matrix = (unit * torch.eye(layer.dim, dtype=torch.float64)).reshape(channels, *spatial, channels, *spatial)
    for place in itertools.product(*map(range, spatial)):
        for tap in itertools.product(range(layer.kernel_size), repeat=len(spatial)):
            source = tuple(p - t for p, t in zip(place, tap, strict=True))
            if min(source) >= 0:
                for out, inp in itertools.product(range(channels), repeat=2):
                    if any(tap) or inp < out + (not unit):
                        matrix[(out, *place, inp, *source)] = layer.weight[(out, inp, *tap)]
    return matrix.reshape(layer.dim, layer.dim)


@pytest.mark.parametrize("shape", [(2, 4, 5), (3, 2, 4), (1, 3, 3), (3, 7)])
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 6])
@pytest.mark.parametrize("cls", [CInC, InverseFlow])
@torch.no_grad()
def test_against_the_definition(cls, shape, kernel_size, perturbed):
    layer = perturbed(cls, shape, 0.3 / kernel_size ** (len(shape) - 1), kernel_size=kernel_size)
    x = torch.randn(2, *shape, dtype=torch.float64)
    matrix, inverse = by_definition(layer), torch.linalg.inv(by_definition(layer))
    forward, back = (matrix, inverse) if cls is CInC else (inverse, matrix)
    y, log_det = layer(x)
    torch.testing.assert_close(y.flatten(1), x.flatten(1) @ forward.T)
    torch.testing.assert_close(layer.inverse(y).flatten(1), y.flatten(1) @ back.T)
    torch.testing.assert_close(layer.dense(), forward)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(forward).logabsdet, rtol=1e-7, atol=1e-12)
    assert cls is CInC or log_det == 0


def test_a_zero_on_the_diagonal_of_the_first_tap_is_singular():
    layer = CInC((2, 4, 4))
    with torch.no_grad():
        layer.weight[1, 1, 0, 0] = 0
    assert layer.log_det() == -math.inf
    assert free_parameters(layer) == 2 * 2 * 9 - 1


def test_gradients_are_those_of_the_implicit_function(perturbed):
    layer = perturbed(InverseFlow, (2, 4, 5), 0.03)
    x, gradient = torch.randn(2, 3, 2, 4, 5, dtype=torch.float64)
    x.requires_grad_()
    y = layer(x)[0]
    of_x, of_weight = torch.autograd.grad(y, (x, layer.weight), gradient)
    solved = torch.linalg.solve(by_definition(layer).T, gradient.flatten(1).T).T.reshape(y.shape)
    torch.testing.assert_close(of_x, solved)
    shifted = torch.stack(
        [F.pad(y, (j, 0, i, 0))[..., :4, :5] for i, j in itertools.product(range(3), repeat=2)]
    ).unflatten(0, (3, 3))
    expected = -torch.einsum("norc,ijnprc->opij", solved, shifted)
    torch.testing.assert_close(of_weight, expected * layer.weight_mask)
    assert free_parameters(layer) == 2 * 2 * 9 - 3
