"""The compiled networks of couplings, of images and of sequences, equal plain PyTorch layer by layer."""

import math
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from compared import with_gradients
from torch import nn

from flows.affine import bounded_gate, doubled_gate, exponential_gate, sigmoid_gate
from flows.conditioners import PointwiseConditioner, WeightNormConditioner
from flows.coupled import Perceptron, convolutions, operands
from flows.couplings import AffineCoupling

pytestmark = pytest.mark.usefixtures("way")

GATES = [("images", sigmoid_gate), ("sequences", exponential_gate)]
GATES += [("images", bounded_gate), ("sequences", bounded_gate)]
every_kind = pytest.mark.parametrize("kind", ["images", "sequences"])


def made(kind, kept=2, moved=3, width=5, dtype=torch.float64, gate=None):
    torch.manual_seed(0)
    if kind == "images":
        net = WeightNormConditioner(kept, moved, width, axes=2, gate=gate or sigmoid_gate)
    else:
        net = PointwiseConditioner(kept, moved, width, gate or exponential_gate)
    coupling = AffineCoupling(kept, net).to(dtype)
    with torch.no_grad():
        for parameter in coupling.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return coupling


def fused(net, x):
    """Return the output of the network of images, or of the perceptron of the shift."""
    return convolutions(x, net.first, net.second, net.last) if isinstance(net, WeightNormConditioner) else net.shift(x)


def layer_after_layer(net, x):
    if isinstance(net, WeightNormConditioner):
        return net.last(F.elu(net.second(F.elu(net.first(x)))))
    rows = x.transpose(1, 2)
    for layer in net.shift if isinstance(net, PointwiseConditioner) else net:
        rows = layer(rows)
    return rows.transpose(1, 2)


def step_by_step(coupling, x):
    """Return y and the log-determinant of a coupling from the results of its separate layers."""
    net, kept, moved = coupling.net, x[:, : coupling.kept], x[:, coupling.kept :]
    if isinstance(net, WeightNormConditioner):
        shift, s = layer_after_layer(net, kept).chunk(2, dim=1)
    else:
        s, shift = (layer_after_layer(each, kept) for each in (net.log_scale, net.shift))
    log_scale = net.gate(s)
    return torch.cat([kept, moved * log_scale.exp() + shift], dim=1), log_scale.flatten(1).sum(1)


def results(function, coupling, x, seeds=None):
    """Return y, the log-determinant, and all gradients."""
    x = x.requires_grad_()
    return with_gradients(function(coupling, x), [x, *coupling.parameters()], seeds)


def apply(coupling, x):
    return coupling(x)


def agree(coupling, x, seeds=None):
    """Compare the outputs and all gradients."""
    torch.testing.assert_close(*(results(function, coupling, x, seeds) for function in (apply, step_by_step)))


# The last ones are summed in more parts than there are.
SPATIAL = ((1, 1), (4, 4), (5, 7), (1, 40), (13, 11))
SHAPES = {
    "images": [*((images, 5, *spatial) for images in (0, 1, 3) for spatial in SPATIAL), (70, 5, 5, 5)],
    "sequences": [(n, 5, length) for n, length in ((0, 4), (2, 0), (1, 1), (2, 3), (7, 1), (3, 4), (48, 2), (5, 101))]
    + [(40, 5, 600)],
}


@pytest.mark.parametrize(("kind", "gate"), [*GATES, ("images", doubled_gate)])
def test_the_fused_coupling_equals_its_separate_layers(kind, gate, case):
    for shape in SHAPES[kind]:
        with case(shape=shape):
            agree(made(kind, gate=gate), torch.randn(shape, dtype=torch.float64))


# Of images: every number of rows and of vectors in a block, and more vectors than a block has.
SIZES = {
    "images": [(1, 1, 1), (1, 2, 16), (2, 1, 17), (3, 5, 33), (7, 4, 40), (6, 6, 64), (5, 3, 129)],
    "sequences": [(*sizes, width) for width in (1, 4, 12, 16, 17, 64, 128) for sizes in ((1, 1), (9, 20), (3, 2))],
}


@every_kind
def test_sizes(kind, case):
    for kept, moved, width in SIZES[kind]:
        with case(kept=kept, moved=moved, width=width):
            shape = (2, kept + moved, 5, 4) if kind == "images" else (3, kept + moved, 40)
            agree(made(kind, kept, moved, width), torch.randn(shape, dtype=torch.float64))


@pytest.mark.parametrize(
    ("kind", "moved", "shape"),
    [("images", 4, (40, 7, 16, 16)), ("images", 4, (20, 10, 4, 4)), ("sequences", 3, (16, 5, 512))],
)
def test_error_in_single_precision(kind, moved, shape):
    """Compared with double precision, the error is at most twice that of separate layers."""
    coupling, exact = (made(kind, shape[1] - moved, moved, 64, dtype) for dtype in (torch.float32, torch.float64))
    exact.load_state_dict(coupling.state_dict())
    x = torch.randn(shape)
    truth = results(step_by_step, exact, x.double())
    of_fused, of_plain = (
        [float((a.double() - true).norm() / true.norm()) for a, true in zip(outcome, truth, strict=True)]
        for outcome in (results(function, coupling, x.clone()) for function in (apply, step_by_step))
    )
    names = ["y", "log_det", "x", *coupling.state_dict()]
    # Weights of perceptrons together, as the few numbers of a bias may be accurate by chance.
    for name, a, b in list(zip(names, of_fused, of_plain, strict=True))[: 3 if kind == "sequences" else None]:
        assert a <= 2 * b, name
    assert math.hypot(*of_fused[3:]) <= 2 * math.hypot(*of_plain[3:])


@pytest.mark.parametrize(("kind", "gate"), [GATES[0], GATES[3]])
def test_second_derivatives(kind, gate, check_derivatives):
    coupling = made(kind, 1, 1, 2, gate=gate)
    x = torch.randn(2, 2, 2, *[2] * (kind == "images"), dtype=torch.float64)
    weights = dict(coupling.named_parameters())

    def of_all(x, *values):
        return torch.func.functional_call(coupling, dict(zip(weights, values, strict=True)), (x,))

    check_derivatives(of_all, x, *weights.values())


@every_kind
def test_frozen_weights_have_no_gradient(kind):
    coupling, x = made(kind), torch.randn(2, 5, *[5] * (2 if kind == "images" else 1), dtype=torch.float64)
    net = coupling.net
    images = kind == "images"
    frozen, trained = (net.first.bias, net.second.bias) if images else (net.shift[0].weight, net.shift[0].bias)
    frozen.requires_grad_(False)
    sum(output.sum() for output in coupling(x)).backward()
    assert frozen.grad is None and trained.grad is not None
    loss = sum(output.square().sum() for output in coupling(x))
    (gradient,) = torch.autograd.grad(loss, trained, create_graph=True)
    gradient.sum().backward()
    assert frozen.grad is None


@every_kind
def test_events_and_gradients_may_be_views_or_none(kind):
    coupling = made(kind)
    spatial = [7, 7] if kind == "images" else [7]
    wide = torch.randn(3, 10, *spatial, dtype=torch.float64)
    repeated = wide[:1, :5].expand(4, 5, *spatial)
    for view in (wide[:, ::2], wide.transpose(1, 2)[:, 2:], wide[:, :5].flip(0)[1:], repeated):
        agree(coupling, view.detach())
    seed = torch.randn(3, *[1] * (1 + len(spatial)), dtype=torch.float64).expand(3, 5, *spatial)
    agree(coupling, wide[:, :5].detach(), [seed, torch.ones((), dtype=torch.float64).expand(3)])
    # The network alone as well, which inverses run.
    coupling, x = made(kind, 3, 3, 20), torch.randn(9, 6, *((6, 6) if kind == "images" else (50,)), dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(coupling(x), step_by_step(coupling, x))
        torch.testing.assert_close(fused(coupling.net, x[:, :3]), layer_after_layer(coupling.net, x[:, :3]))
        torch.testing.assert_close(coupling.inverse(coupling(x)[0]), x)


@every_kind
@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_the_same_for_any_number_of_threads(kind, way, same_by_threads):
    """Bitwise equal, including gradients: the compiled sums have a fixed order."""
    width, spatial = (32, (16, 16)) if kind == "images" else (16, (300,))
    coupling, x = made(kind, 3, 3, width, torch.float32), torch.randn(40, 6, *spatial)
    same_by_threads(lambda: results(apply, coupling, x))


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_an_image_alone_equals_the_same_in_a_batch(way):
    """Bitwise equal: an audit compares likelihoods of batches of other sizes."""
    coupling, x = made("images", 3, 3, 20, torch.float32), torch.randn(9, 6, 6, 6)
    for together, alone in zip(coupling(x), zip(*(coupling(one) for one in x.split(1)), strict=True), strict=True):
        assert torch.equal(together, torch.cat(alone))


def test_nan_and_large_values_propagate():
    coupling = made("images")
    x = torch.randn(2, 5, 8, 8, dtype=torch.float64)
    x[0, 1, 2, 3] = torch.nan
    x[1, 0] *= 1e30
    outcome, expected = coupling(x), step_by_step(coupling, x)
    torch.testing.assert_close(outcome, expected, equal_nan=True)
    assert outcome[0][0, 2:, 0:5, 1:6].isnan().all() and outcome[1][0].isnan()
    assert torch.autograd.grad(outcome[0].nansum(), coupling.net.first.bias)[0].isnan().any()
    coupling = made("sequences")
    x = torch.randn(1, 5, 60, dtype=torch.float64)
    x[0, 1, 7] = torch.nan
    y, log_det = coupling(x)
    assert y[0, 1:, 7].isnan().all() and y.isnan().sum() == 4 and log_det.isnan().all()
    torch.testing.assert_close(y, step_by_step(coupling, x)[0], equal_nan=True)
    (gradient,) = torch.autograd.grad(y.sum(), coupling.net.log_scale[0].weight)
    assert gradient.isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_and_saturated_values_of_images(dtype):
    """Both ELUs are accurate relative to the value, however small it is."""
    net = made("images", 1, 1, 1, dtype).net.requires_grad_(False)
    with torch.no_grad():
        for layer in (net.first, net.second, net.last):
            gain, direction, bias = operands(layer)
            direction.zero_()
            direction[:, :, direction.shape[2] // 2, direction.shape[3] // 2] = 1
            gain.fill_(1)
            bias.zero_()
    x = torch.tensor([1e30, 60, 1, 1e-3, 1e-30, 0, -1e-30, -1e-6, -1e-3, -0.1, -0.5, -1, -9, -60, -1e30], dtype=dtype)
    expected = F.elu(F.elu(x.double())).to(dtype)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(fused(net, x.view(1, 1, 3, 5))[0, 0].flatten(), expected, rtol=8 * eps, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_saturated_and_small_values_of_sequences(dtype):
    net = Perceptron(1, 1, 4, nn.Tanh).to(dtype)
    for layer in (net[0], net[2], net[4]):
        layer.weight.fill_(1)
        layer.bias.zero_()
    x = torch.tensor([1e30, -1e30, 60, 19, 9, 8, 1, 0.3, 1e-3, -1e-6, 1e-20, 0, -0.1], dtype=dtype)[None, None]
    expected = layer_after_layer(net, x)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(net(x), expected, rtol=16 * eps, atol=16 * eps)
    assert net(x[..., :3]).abs().max() <= 4


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_operands_that_do_not_fit_are_refused(way):
    coupling, x = made("images"), torch.randn(2, 5, 3, 4, dtype=torch.float64)
    net, kept = coupling.net, x[:, :2]
    weights = [tensor.detach() for tensor in operands(net.first, net.second, net.last)]
    operators = torch.ops.invertbench
    for wrong in (
        (kept.bfloat16(), weights),
        (kept[0], weights),
        (kept[:, :1], weights),
        (kept, weights[:8]),
        (kept, weights[::-1]),
    ):
        with pytest.raises((TypeError, ValueError), match="convolutions"):
            operators.convolutions(*wrong, False)
    y, saved = operators.convolutions(kept, weights, True)
    shift, s = y.chunk(2, dim=1)
    of_x = torch.zeros_like(kept)
    for wrong in (
        (of_x[:, :1], shift, s, kept, weights, saved),
        (of_x, shift, s[:, :1], kept, weights, saved),
        (of_x, shift, s[1:], kept, weights, saved),
        (of_x, shift.float(), s, kept, weights, saved),
        (of_x, shift, s, kept, weights, saved[:1]),
    ):
        with pytest.raises(ValueError, match="convolutions_backward"):
            operators.convolutions_backward(*wrong)
    for network, number, kept_channels, match in (
        ("convolution", 9, 2, "network 'convolution' is not known"),
        ("convolutions", 8, 2, "8 weights; convolutions have 9"),
        ("convolutions", 9, 5, "5 kept channels"),
        ("convolutions", 9, 0, "0 kept channels"),
    ):
        with pytest.raises(ValueError, match=match):
            operators.coupling(x, weights[:number], kept_channels, 1, network)


def test_plain_pytorch_serves_the_rest_and_transforms():
    coupling = made("images", dtype=torch.float32)
    x = torch.randn(2, 5, 4, 4)
    for outcome, expected in zip(torch.func.vmap(coupling)(x[None]), step_by_step(coupling, x), strict=True):
        torch.testing.assert_close(outcome[0], expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert fused(coupling.net, x[:, :2]).dtype == torch.bfloat16
    sequences = AffineCoupling(2, WeightNormConditioner(2, 3, 5, axes=1))
    assert sequences(x[..., 0])[0].shape == (2, 5, 4)
    coupling, x = made("sequences"), torch.randn(2, 5, 3, dtype=torch.float64)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(transform(coupling)(x), transform(lambda x: step_by_step(coupling, x))(x))


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
