"""The perceptron of the couplings is a plain sequence of layers, however it is computed."""

import pytest
import torch
from torch import nn

from flows import perceptron
from flows.perceptron import Perceptron


def plain(net, columns):
    """Layer after layer, points as rows."""
    rows = columns.T
    for layer in net:
        rows = layer(rows)
    return rows.T


def made(activation=nn.Tanh, width=5, dtype=torch.float64):
    torch.manual_seed(0)
    net = Perceptron(2, 3, width, activation).to(dtype)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("points", [0, 1, 6, 7, 12])
def test_same_as_layer_after_layer(activation, points, monkeypatch):
    """With parts of six points, so that the last one is full, short or alone."""
    monkeypatch.setattr(perceptron, "PART", 30)
    net = made(activation)
    columns = torch.randn(2, points, dtype=torch.float64, requires_grad=True)
    leaves = [columns, *net.parameters()]
    outputs = [net(columns), plain(net, columns)]
    torch.testing.assert_close(*outputs)
    seed = torch.randn(3, points, dtype=torch.float64)
    gradients = [torch.autograd.grad(output, leaves, seed) for output in outputs]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_second_derivatives(activation):
    net = made(activation)
    columns = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(net, columns)
    assert torch.autograd.gradgradcheck(net, columns)


def test_columns_may_be_views():
    net = made()
    wide = torch.randn(7, 4, dtype=torch.float64)
    torch.testing.assert_close(net(wide.T[::2]), plain(net, wide.T[::2]))


def test_error_in_single_precision():
    """tanh by way of a sigmoid: at most three times the error of torch's own."""
    net, columns = made(width=64, dtype=torch.float32), torch.randn(2, 4096)
    exact = made(width=64)
    exact.load_state_dict(net.state_dict())
    expected = plain(exact, columns.double())
    error, plain_error = ((value.double() - expected).norm() for value in (net(columns), plain(net, columns)))
    assert error <= 3 * plain_error


def test_saturated_values_are_exactly_one():
    net = made()
    with torch.no_grad():
        net[0].weight.fill_(1e3)
    columns = torch.tensor([[1.0, -1.0], [1.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(net(columns), plain(net, columns), rtol=1e-14, atol=0)


def test_names_and_draws_are_those_of_the_layers():
    torch.manual_seed(3)
    net = Perceptron(2, 3, 5, nn.Tanh)
    torch.manual_seed(3)
    linears = [nn.Linear(2, 5), nn.Linear(5, 5), nn.Linear(5, 3)]
    for linear in linears:
        nn.init.orthogonal_(linear.weight)
    assert list(net.state_dict()) == [f"{place}.{name}" for place in (0, 2, 4) for name in ("weight", "bias")]
    for place, linear in zip((0, 2, 4), linears, strict=True):
        assert torch.equal(net[place].weight, linear.weight) and not net[place].bias.any()
