"""The perceptron of the couplings is a plain sequence of layers, however it is computed."""

import itertools
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from flows import perceptron
from flows.perceptron import Perceptron
from layers.kernels import load as kernels


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def way(request, monkeypatch):
    """With the compiled operator, and without."""
    if request.param == "plain":
        monkeypatch.setattr(perceptron, "WIDEST", 0)
    elif not kernels.load():
        pytest.skip(f"no compiled kernels: {kernels.backend().reason}")
    return request.param


def layer_after_layer(net, x):
    rows = x.transpose(1, 2)
    for layer in net:
        rows = layer(rows)
    return rows.transpose(1, 2)


def made(activation=nn.Tanh, width=5, dtype=torch.float64, inputs=2, outputs=3):
    torch.manual_seed(0)
    net = Perceptron(inputs, outputs, width, activation).to(dtype)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def agree(net, x, **tolerance):
    """Output, and the gradients of everything."""
    leaves = [x.requires_grad_(), *net.parameters()]
    outputs = [net(x), layer_after_layer(net, x)]
    torch.testing.assert_close(*outputs, **tolerance)
    seed = torch.randn(outputs[0].shape, dtype=x.dtype)
    gradients = [torch.autograd.grad(output, leaves, seed) for output in outputs]
    torch.testing.assert_close(*gradients, **tolerance)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_same_as_layer_after_layer(activation, case):
    for events, length in [(0, 4), (2, 0), (1, 1), (2, 3), (7, 1), (3, 4), (48, 2), (5, 101)]:
        with case(events=events, length=length):
            agree(made(activation), torch.randn(events, 2, length, dtype=torch.float64))


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_sizes(activation, case):
    for width, (inputs, outputs) in itertools.product((1, 4, 12, 16, 17, 64, 128), ((1, 1), (9, 20))):
        with case(width=width, inputs=inputs, outputs=outputs):
            x = torch.randn(3, inputs, 40, dtype=torch.float64)
            agree(made(activation, width, inputs=inputs, outputs=outputs), x)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_second_derivatives(activation):
    net = made(activation)
    x = torch.randn(2, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(net, x)
    assert torch.autograd.gradgradcheck(net, x)

    def of_weights(x, weight):
        return torch.func.functional_call(net, {"2.weight": weight}, (x,))

    assert torch.autograd.gradgradcheck(of_weights, (x, net[2].weight.detach().requires_grad_()))


def test_frozen_weights_have_no_gradient():
    net, x = made(), torch.randn(2, 2, 5, dtype=torch.float64)
    net[0].weight.requires_grad_(False)
    net(x).sum().backward()
    assert net[0].weight.grad is None and net[0].bias.grad is not None


def test_events_may_be_views():
    net = made()
    wide = torch.randn(3, 8, 7, dtype=torch.float64)
    for view in (wide[:, ::4], wide.transpose(1, 2)[:, 5:], wide[:, :2].flip(0)[1:]):
        agree(net, view.detach())
    seed = torch.randn(3, 1, 1, dtype=torch.float64).expand(3, 3, 7)
    gradients = [
        torch.autograd.grad(f(wide[:, :2]), net[2].weight, seed) for f in (net, lambda x: layer_after_layer(net, x))
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_error_in_single_precision(activation):
    """Against double precision: at most twice the error of layer after layer."""
    net, x = made(activation, 64, torch.float32), torch.randn(16, 2, 512, requires_grad=True)
    exact = made(activation, 64)
    exact.load_state_dict(net.state_dict())
    exact_x = x.detach().double().requires_grad_()
    seed = torch.randn(16, 3, 512)

    def of(function, net, x, seed):
        y = function(x)
        return [y, *torch.autograd.grad(y, [x, *net.parameters()], seed)]

    truth = of(lambda x: layer_after_layer(exact, x), exact, exact_x, seed.double())
    ours = of(net, net, x, seed)
    plain = of(lambda x: layer_after_layer(net, x), net, x, seed)
    for name, a, b, true in zip(["y", "x", *net.state_dict()], ours, plain, truth, strict=True):
        assert (a.double() - true).norm() <= 2 * (b.double() - true).norm(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturated_and_small_values(dtype):
    net = made(width=4, dtype=dtype, inputs=1, outputs=1)
    with torch.no_grad():
        for layer in (net[0], net[2], net[4]):
            layer.weight.fill_(1)
            layer.bias.zero_()
    x = torch.tensor([1e30, -1e30, 60, 19, 9, 8, 1, 0.3, 1e-3, -1e-6, 1e-20, 0, -0.1], dtype=dtype)[None, None]
    expected = layer_after_layer(net, x)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(net(x), expected, rtol=16 * eps, atol=16 * eps)
    assert net(x[..., :3]).abs().max() <= 4


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_what_is_no_number_stays_none(activation):
    net = made(activation)
    x = torch.randn(1, 2, 60, dtype=torch.float64)
    x[0, 1, 7] = torch.nan
    y = net(x)
    assert y[..., 7].isnan().all() and y.isnan().sum() == 3
    torch.testing.assert_close(y, layer_after_layer(net, x), equal_nan=True)
    (gradient,) = torch.autograd.grad(y.sum(), net[0].weight)
    assert gradient.isnan().any()


def test_the_same_for_any_number_of_threads(way):
    """Bit by bit, gradients too: the compiled sums have an order of their own."""
    if way == "plain":
        pytest.skip("plain PyTorch's products are a library's")
    net, x = made(width=16, dtype=torch.float32), torch.randn(40, 2, 300)
    threads = torch.get_num_threads()
    results = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            y = net(x)
            results.append([y, *torch.autograd.grad(y.square().sum(), list(net.parameters()))])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_transforms():
    net, x = made(), torch.randn(2, 2, 3, dtype=torch.float64)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(transform(net)(x), transform(lambda x: layer_after_layer(net, x))(x))


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


ALONE = """\
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flows import Glow
from layers.conv1x1 import Conv1x1


class Watch(TorchDispatchMode):
    seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(str(func).removesuffix(".default"))
        return func(*args, **(kwargs or {}))


flow = Glow((2, 32), Conv1x1, levels=1, steps=1, width=8)
with Watch() as watch:
    flow.log_prob(torch.randn(3, 2, 32)).sum().backward()
print(*sorted(name for name in watch.seen if name.startswith("invertbench.")))
"""


def test_a_flow_loads_the_kernel_itself(way):
    """In a new process that imports flows and layers alone."""
    environment = os.environ | {"INVERTBENCH_KERNELS": "off" if way == "plain" else "on"}
    done = subprocess.run([sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, check=True)
    used = ["invertbench.perceptron", "invertbench.perceptron_backward"] if way == "compiled" else []
    assert done.stdout.split() == used, done.stderr
