"""Couplings by compiled perceptrons equal those by a plain sequence of layers."""

import itertools
import math
import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import nn

from flows.affine import bounded_gate, exponential_gate
from flows.conditioners import PointwiseConditioner
from flows.couplings import AffineCoupling
from flows.perceptron import Perceptron

pytestmark = pytest.mark.usefixtures("way")


def layer_after_layer(net, x):
    rows = x.transpose(1, 2)
    for layer in net:
        rows = layer(rows)
    return rows.transpose(1, 2)


def made(width=5, dtype=torch.float64, kept=2, moved=3, gate=exponential_gate):
    torch.manual_seed(0)
    coupling = AffineCoupling(kept, PointwiseConditioner(kept, moved, width, gate)).to(dtype)
    with torch.no_grad():
        for parameter in coupling.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return coupling


def step_by_step(coupling, x):
    """Return y and the log-determinant of a coupling from the results of its separate layers."""
    net, kept, moved = coupling.net, x[:, : coupling.kept], x[:, coupling.kept :]
    log_scale = net.gate(layer_after_layer(net.log_scale, kept))
    y = torch.cat([kept, moved * log_scale.exp() + layer_after_layer(net.shift, kept)], dim=1)
    return y, log_scale.flatten(1).sum(1)


def results(function, x, leaves, seeds):
    """Return y, the log-determinant, and all gradients."""
    outputs = function(x)
    gradients = torch.autograd.grad(outputs, leaves, seeds)
    return [*(output.detach() for output in outputs), *gradients]


def agree(coupling, x, **tolerance):
    """Compare the outputs and all gradients."""
    leaves = [x.requires_grad_(), *coupling.parameters()]
    seeds = [torch.randn(x.shape, dtype=x.dtype), torch.randn(len(x), dtype=x.dtype)]
    ways = (coupling, partial(step_by_step, coupling))
    torch.testing.assert_close(*(results(way, x, leaves, seeds) for way in ways), **tolerance)


@pytest.mark.parametrize("gate", [exponential_gate, bounded_gate])
def test_the_fused_coupling_equals_its_separate_layers(gate, case):
    for events, length in [(0, 4), (2, 0), (1, 1), (2, 3), (7, 1), (3, 4), (48, 2), (5, 101)]:
        with case(events=events, length=length):
            agree(made(gate=gate), torch.randn(events, 5, length, dtype=torch.float64))


def test_sizes(case):
    for width, (kept, moved) in itertools.product((1, 4, 12, 16, 17, 64, 128), ((1, 1), (9, 20), (3, 2))):
        with case(width=width, kept=kept, moved=moved):
            x = torch.randn(3, kept + moved, 40, dtype=torch.float64)
            agree(made(width, kept=kept, moved=moved), x)


def test_many_positions_add_up():
    """More tiles than the parts over which gradients are summed."""
    agree(made(16), torch.randn(40, 5, 600, dtype=torch.float64))


@pytest.mark.parametrize("gate", [exponential_gate, bounded_gate])
def test_second_derivatives(gate):
    coupling = made(gate=gate)
    x = torch.randn(2, 5, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(coupling, x)
    assert torch.autograd.gradgradcheck(coupling, x)
    loss, leaves = sum(output.square().sum() for output in coupling(x)), [x, *coupling.parameters()]
    gradients = (torch.autograd.grad(loss, leaves, create_graph=way, retain_graph=True) for way in (False, True))
    torch.testing.assert_close(*gradients)

    def of_weights(x, weight):
        return torch.func.functional_call(coupling, {"net.log_scale.2.weight": weight}, (x,))

    weight = coupling.net.log_scale[2].weight
    assert torch.autograd.gradgradcheck(of_weights, (x, weight.detach().requires_grad_()))


def test_frozen_weights_have_no_gradient():
    coupling, x = made(), torch.randn(2, 5, 5, dtype=torch.float64)
    frozen, trained = coupling.net.shift[0].weight.requires_grad_(False), coupling.net.shift[0].bias
    coupling(x)[0].sum().backward()
    assert frozen.grad is None and trained.grad is not None


def test_events_may_be_views():
    coupling = made()
    wide = torch.randn(3, 10, 7, dtype=torch.float64)
    for view in (wide[:, ::2], wide.transpose(1, 2)[:, 2:], wide[:, :5].flip(0)[1:]):
        agree(coupling, view.detach())
    x = wide[:, :5]
    seeds = [torch.randn(3, 1, 1, dtype=torch.float64).expand(3, 5, 7), torch.ones((), dtype=torch.float64).expand(3)]
    leaves = list(coupling.parameters())
    torch.testing.assert_close(*(results(way, x, leaves, seeds) for way in (coupling, partial(step_by_step, coupling))))


def test_without_gradients(way):
    """The perceptrons alone as well, which inverses run."""
    coupling, x = made(16), torch.randn(3, 5, 50, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(coupling(x), step_by_step(coupling, x))
        torch.testing.assert_close(coupling.net.shift(x[:, :2]), layer_after_layer(coupling.net.shift, x[:, :2]))
        torch.testing.assert_close(coupling.inverse(coupling(x)[0]), x)


def test_error_in_single_precision():
    """Compared with double precision, the error is at most twice that of separate layers."""
    coupling, x = made(64, torch.float32), torch.randn(16, 5, 512)
    exact = made(64)
    exact.load_state_dict(coupling.state_dict())
    seeds = [torch.randn(16, 5, 512), torch.randn(16)]

    def of(function, coupling, dtype):
        events = x.detach().to(dtype).requires_grad_()
        return results(function, events, [events, *coupling.parameters()], [seed.to(dtype) for seed in seeds])

    truth = of(partial(step_by_step, exact), exact, torch.float64)
    fused, plain = (of(f, coupling, torch.float32) for f in (coupling, partial(step_by_step, coupling)))
    of_fused, of_plain = (
        [float((a.double() - true).norm() / true.norm()) for a, true in zip(found, truth, strict=True)]
        for found in (fused, plain)
    )
    for name, a, b in zip(("y", "log_det", "x"), of_fused, of_plain, strict=False):
        assert a <= 2 * b, name
    # Together, as the few numbers of a bias may be accurate by chance.
    assert math.hypot(*of_fused[3:]) <= 2 * math.hypot(*of_plain[3:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_saturated_and_small_values(dtype):
    net = Perceptron(1, 1, 4, nn.Tanh).to(dtype)
    for layer in (net[0], net[2], net[4]):
        layer.weight.fill_(1)
        layer.bias.zero_()
    x = torch.tensor([1e30, -1e30, 60, 19, 9, 8, 1, 0.3, 1e-3, -1e-6, 1e-20, 0, -0.1], dtype=dtype)[None, None]
    expected = layer_after_layer(net, x)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(net(x), expected, rtol=16 * eps, atol=16 * eps)
    assert net(x[..., :3]).abs().max() <= 4


def test_nan_propagates():
    coupling = made()
    x = torch.randn(1, 5, 60, dtype=torch.float64)
    x[0, 1, 7] = torch.nan
    y, log_det = coupling(x)
    assert y[0, 1:, 7].isnan().all() and y.isnan().sum() == 4 and log_det.isnan().all()
    torch.testing.assert_close(y, step_by_step(coupling, x)[0], equal_nan=True)
    (gradient,) = torch.autograd.grad(y.sum(), coupling.net.log_scale[0].weight)
    assert gradient.isnan().any()


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_the_same_for_any_number_of_threads(way, by_threads):
    """Bitwise equal, including gradients: the compiled sums have a fixed order."""
    coupling, x = made(16, torch.float32), torch.randn(40, 5, 300)

    def values():
        y, log_det = coupling(x)
        loss = y.square().sum() + log_det.sum()
        return [y, log_det, *torch.autograd.grad(loss, list(coupling.parameters()))]

    found = by_threads(values)
    for result in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], result, strict=True))


def test_transforms():
    coupling, x = made(), torch.randn(2, 5, 3, dtype=torch.float64)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(transform(coupling)(x), transform(partial(step_by_step, coupling))(x))


def test_parameter_names_and_initial_weights_equal_those_of_separate_layers():
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


@pytest.mark.system
def test_a_flow_loads_the_kernel_itself(way):
    """In a new process that imports flows and layers only."""
    environment = os.environ | {"INVERTBENCH_KERNELS": "off" if way == "plain" else "on"}
    done = subprocess.run([sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, check=True)
    forward = ["actnorm", "affine_coupling", "mix_channels", "perceptron", "plu"]
    names = sorted([*forward, *(f"{name}_backward" for name in forward)])
    assert done.stdout.split() == [f"invertbench.{name}" for name in names if way == "compiled"], done.stderr
