import pytest
import torch

from layers.conv1x1 import Conv1x1
from layers.orthogonal import Orthogonal

WAYS = ("householder", "cayley", "exponential")


def made(way, channels=5):
    torch.manual_seed(3)
    return Orthogonal((channels, 4), parameterisation=way)


@pytest.mark.parametrize("way", WAYS)
def test_parameterisations_start_at_the_matrix_of_the_1x1_convolution_and_stay_orthogonal(way):
    layer = made(way)
    torch.manual_seed(3)  # the same draw
    torch.testing.assert_close(layer.matrix(), Conv1x1((5, 4)).matrix())
    assert layer.replaces_mixer
    layer = made(way)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(3 * torch.randn_like(parameter))
    layer.double()
    weight = layer.matrix()
    torch.testing.assert_close(weight @ weight.T, torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-13)
    torch.testing.assert_close(layer.dense()[::4, ::4], weight, rtol=0, atol=1e-12)


def test_cayley_and_exponential_agree_to_first_order_only():
    cayley, exponential = made("cayley").double(), made("exponential").double()
    with torch.no_grad():
        cayley.lower[1, 0], exponential.lower[1, 0] = 1e-4, -2e-4
    torch.testing.assert_close(cayley.matrix(), exponential.matrix(), rtol=0, atol=1e-11)
    with torch.no_grad():
        cayley.lower[1, 0], exponential.lower[1, 0] = 1.0, -torch.pi / 2  # a quarter turn: tan(angle / 2)
    torch.testing.assert_close(cayley.matrix(), exponential.matrix(), rtol=0, atol=1e-12)
