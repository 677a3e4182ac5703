"""The compiled network of image couplings equals plain PyTorch."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from flows.affine import bounded_gate, doubled_gate, sigmoid_gate
from flows.conditioners import WeightNormConditioner
from flows.convolutions import convolutions, operands
from flows.couplings import AffineCoupling

pytestmark = pytest.mark.usefixtures("way")


def made(kept=2, moved=3, width=5, dtype=torch.float64, gate=sigmoid_gate):
    torch.manual_seed(0)
    coupling = AffineCoupling(kept, WeightNormConditioner(kept, moved, width, axes=2, gate=gate)).to(dtype)
    with torch.no_grad():
        for parameter in coupling.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return coupling


def layer_after_layer(net, x):
    return net.last(F.elu(net.second(F.elu(net.first(x)))))


def step_by_step(coupling, x):
    """Return y and the log-determinant of a coupling from the results of its separate layers."""
    kept, moved = x[:, : coupling.kept], x[:, coupling.kept :]
    shift, s = layer_after_layer(coupling.net, kept).chunk(2, dim=1)
    log_scale = coupling.net.gate(s)
    return torch.cat([kept, moved * log_scale.exp() + shift], dim=1), log_scale.flatten(1).sum(1)


def results(function, coupling, x, seeds):
    """Return y, the log-determinant, and all gradients."""
    outputs = function(coupling, x)
    gradients = torch.autograd.grad(outputs, [x, *coupling.parameters()], seeds)
    return [*(output.detach() for output in outputs), *gradients]


def apply(coupling, x):
    return coupling(x)


def agree(coupling, x, seeds=None):
    """Compare the outputs and all gradients."""
    x = x.requires_grad_()
    seeds = seeds or [torch.randn(x.shape, dtype=x.dtype), torch.randn(len(x), dtype=x.dtype)]
    torch.testing.assert_close(*(results(function, coupling, x, seeds) for function in (apply, step_by_step)))


@pytest.mark.parametrize("gate", [sigmoid_gate, bounded_gate, doubled_gate])
def test_the_fused_coupling_equals_its_separate_layers(gate, case):
    for images, shape in product((0, 1, 3), ((1, 1), (4, 4), (5, 7), (1, 40), (13, 11))):
        with case(images=images, shape=shape):
            agree(made(gate=gate), torch.randn(images, 5, *shape, dtype=torch.float64))
    with case(images=70):
        agree(made(gate=gate), torch.randn(70, 5, 5, 5, dtype=torch.float64))


def test_sizes(case):
    """Every number of rows and of vectors in a block, and more vectors than a block has."""
    for kept, moved, width in [(1, 1, 1), (1, 2, 16), (2, 1, 17), (3, 5, 33), (7, 4, 40), (6, 6, 64), (5, 3, 129)]:
        with case(kept=kept, moved=moved, width=width):
            agree(made(kept, moved, width), torch.randn(2, kept + moved, 5, 4, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(40, 7, 16, 16), (20, 10, 4, 4)])
def test_error_in_single_precision(shape):
    """Compared with double precision, the error is at most twice that of separate layers."""
    coupling, exact = (made(shape[1] - 4, 4, 64, dtype) for dtype in (torch.float32, torch.float64))
    exact.load_state_dict(coupling.state_dict())
    x, seeds = torch.randn(shape), [torch.randn(shape), torch.randn(shape[0])]
    truth = results(step_by_step, exact, x.double().requires_grad_(), [seed.double() for seed in seeds])
    ways = (apply, step_by_step)
    found, plain = (results(function, coupling, x.clone().requires_grad_(), seeds) for function in ways)
    for name, a, b, true in zip(["y", "log_det", "x", *coupling.state_dict()], found, plain, truth, strict=True):
        assert (a.double() - true).norm() <= 2 * (b.double() - true).norm(), name


@pytest.mark.parametrize("gate", [sigmoid_gate, bounded_gate])
def test_second_derivatives(gate):
    coupling = made(1, 1, 2, gate=gate)
    x = torch.randn(2, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    weights = {name: weight.detach().requires_grad_() for name, weight in coupling.named_parameters()}

    def of_all(x, *values):
        return torch.func.functional_call(coupling, dict(zip(weights, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(of_all, (x, *weights.values()))
    assert torch.autograd.gradgradcheck(of_all, (x, *weights.values()))
    loss, leaves = sum(output.square().sum() for output in coupling(x)), [x, *coupling.parameters()]
    gradients = (torch.autograd.grad(loss, leaves, create_graph=way, retain_graph=True) for way in (False, True))
    torch.testing.assert_close(*gradients)


def test_frozen_weights_have_no_gradient():
    coupling, x = made(), torch.randn(2, 5, 5, 5, dtype=torch.float64)
    net = coupling.net
    net.first.bias.requires_grad_(False)
    sum(output.sum() for output in coupling(x)).backward()
    assert net.first.bias.grad is None and net.second.bias.grad is not None
    loss = sum(output.square().sum() for output in coupling(x))
    (gradient,) = torch.autograd.grad(loss, net.second.bias, create_graph=True)
    gradient.sum().backward()
    assert net.first.bias.grad is None


def test_images_and_gradients_may_be_views():
    coupling = made()
    wide = torch.randn(3, 10, 7, 7, dtype=torch.float64)
    for view in (wide[:, ::2], wide.transpose(1, 2)[:, 2:], wide[:, :5].flip(0)[1:], wide[:1, :5].expand(4, 5, 7, 7)):
        agree(coupling, view.detach())
    seed = torch.randn(3, 1, 1, 1, dtype=torch.float64).expand(3, 5, 7, 7)
    agree(coupling, wide[:, :5].detach(), [seed, torch.ones((), dtype=torch.float64).expand(3)])


def test_without_gradients():
    """The network alone as well, which inverses run."""
    coupling, x = made(3, 3, 20), torch.randn(9, 6, 6, 6, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(coupling(x), step_by_step(coupling, x))
        torch.testing.assert_close(fused(coupling.net, x[:, :3]), layer_after_layer(coupling.net, x[:, :3]))
        torch.testing.assert_close(coupling.inverse(coupling(x)[0]), x)


def fused(net, x):
    return convolutions(x, net.first, net.second, net.last)


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_an_image_alone_equals_the_same_in_a_batch(way):
    """Bitwise equal: an audit compares likelihoods of batches of other sizes."""
    coupling, x = made(3, 3, 20, torch.float32), torch.randn(9, 6, 6, 6)
    for together, alone in zip(coupling(x), zip(*(coupling(one) for one in x.split(1)), strict=True), strict=True):
        assert torch.equal(together, torch.cat(alone))


def test_nan_and_large_values_propagate():
    coupling = made()
    x = torch.randn(2, 5, 8, 8, dtype=torch.float64)
    x[0, 1, 2, 3] = torch.nan
    x[1, 0] *= 1e30
    found, expected = coupling(x), step_by_step(coupling, x)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found[0][0, 2:, 0:5, 1:6].isnan().all() and found[1][0].isnan()
    assert torch.autograd.grad(found[0].nansum(), coupling.net.first.bias)[0].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_and_saturated_values(dtype):
    """Both ELUs are accurate relative to the value, however small it is."""
    net = made(1, 1, 1, dtype).net.requires_grad_(False)
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


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_the_same_for_any_number_of_threads(way, by_threads):
    """Bitwise equal, including gradients: the compiled sums have a fixed order."""
    coupling, x = made(3, 3, 32, torch.float32), torch.randn(40, 6, 16, 16, requires_grad=True)
    seeds = [torch.randn(40, 6, 16, 16), torch.randn(40)]
    found = by_threads(lambda: results(apply, coupling, x, seeds))
    for result in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], result, strict=True))


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_operands_that_do_not_fit_are_refused(way):
    coupling, x = made(), torch.randn(2, 5, 3, 4, dtype=torch.float64)
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


def test_plain_pytorch_serves_the_rest():
    coupling = made(dtype=torch.float32)
    x = torch.randn(2, 5, 4, 4)
    for found, expected in zip(torch.func.vmap(coupling)(x[None]), step_by_step(coupling, x), strict=True):
        torch.testing.assert_close(found[0], expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert fused(coupling.net, x[:, :2]).dtype == torch.bfloat16
    sequences = AffineCoupling(2, WeightNormConditioner(2, 3, 5, axes=1))
    assert sequences(x[..., 0])[0].shape == (2, 5, 4)
