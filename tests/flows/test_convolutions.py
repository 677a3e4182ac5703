"""The compiled network of image couplings equals plain PyTorch."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from flows import convolutions as module
from flows.conditioners import WeightNormConditioner
from flows.convolutions import convolutions
from layers.kernels import load as kernels


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def way(request, monkeypatch):
    """Run a test with the compiled operator and with plain PyTorch."""
    if request.param == "plain":
        monkeypatch.setattr(module, "WIDEST", 0)
    elif not kernels.load():
        pytest.skip(f"no compiled kernels: {kernels.backend().reason}")
    return request.param


def made(kept=2, moved=3, width=5, dtype=torch.float64):
    torch.manual_seed(0)
    net = WeightNormConditioner(kept, moved, width, axes=2).to(dtype)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def fused(net, x):
    return convolutions(x, net.first, net.second, net.last)


def layer_after_layer(net, x):
    return net.last(F.elu(net.second(F.elu(net.first(x)))))


def results(function, net, x, seed):
    """Return the output and all gradients."""
    y = function(net, x)
    return [y, *torch.autograd.grad(y, [x, *net.parameters()], seed)]


def agree(net, x):
    seed = torch.randn_like(layer_after_layer(net, x))
    x.requires_grad_()
    torch.testing.assert_close(results(fused, net, x, seed), results(layer_after_layer, net, x, seed))


def test_the_fused_kernel_equals_separate_layers(case):
    for images, shape in product((0, 1, 3), ((1, 1), (4, 4), (5, 7), (1, 40), (13, 11))):
        with case(images=images, shape=shape):
            agree(made(), torch.randn(images, 2, *shape, dtype=torch.float64))
    with case(images=70):
        agree(made(), torch.randn(70, 2, 5, 5, dtype=torch.float64))


def test_sizes(case):
    """Every number of rows and of vectors in a block, and more vectors than a block has."""
    for kept, moved, width in [(1, 1, 1), (1, 2, 16), (2, 1, 17), (3, 5, 33), (7, 4, 40), (6, 6, 64), (5, 3, 129)]:
        with case(kept=kept, moved=moved, width=width):
            agree(made(kept, moved, width), torch.randn(2, kept, 5, 4, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(40, 3, 16, 16), (20, 6, 4, 4)])
def test_error_in_single_precision(shape):
    """Compared with double precision, the error is at most twice that of separate layers."""
    net, exact = (made(shape[1], 4, 64, dtype) for dtype in (torch.float32, torch.float64))
    exact.load_state_dict(net.state_dict())
    x = torch.randn(shape)
    seed = torch.randn(shape[0], 8, *shape[2:])
    truth = results(layer_after_layer, exact, x.double().requires_grad_(), seed.double())
    found, plain = (results(function, net, x.clone().requires_grad_(), seed) for function in (fused, layer_after_layer))
    for name, a, b, true in zip(["y", "x", *net.state_dict()], found, plain, truth, strict=True):
        assert (a.double() - true).norm() <= 2 * (b.double() - true).norm(), name


def test_second_derivatives():
    net = made(1, 1, 2)
    x = torch.randn(2, 1, 2, 3, dtype=torch.float64, requires_grad=True)
    weights = {name: weight.detach().requires_grad_() for name, weight in net.named_parameters()}

    def of_all(x, *values):
        return torch.func.functional_call(net, dict(zip(weights, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(of_all, (x, *weights.values()))
    assert torch.autograd.gradgradcheck(of_all, (x, *weights.values()))


def test_frozen_weights_have_no_gradient():
    net, x = made(), torch.randn(2, 2, 5, 5, dtype=torch.float64)
    net.first.bias.requires_grad_(False)
    fused(net, x).sum().backward()
    assert net.first.bias.grad is None and net.second.bias.grad is not None


def test_images_and_gradients_may_be_views():
    net = made()
    wide = torch.randn(3, 8, 7, 7, dtype=torch.float64)
    for view in (wide[:, ::4], wide.transpose(1, 2)[:, 5:], wide[:, :2].flip(0)[1:], wide[:1, :2].expand(4, 2, 7, 7)):
        agree(net, view.detach())
    seed = torch.randn(3, 1, 1, 1, dtype=torch.float64).expand(3, 6, 7, 7)
    x = wide[:, :2].requires_grad_()
    torch.testing.assert_close(results(fused, net, x, seed), results(layer_after_layer, net, x, seed))


def test_an_image_alone_equals_the_same_in_a_batch(way):
    """Bitwise equal: an audit compares likelihoods of batches of other sizes."""
    net, x = made(3, 3, 20, torch.float32), torch.randn(9, 3, 6, 6)
    if way == "compiled":
        assert torch.equal(fused(net, x), torch.cat([fused(net, one) for one in x.split(1)]))
    with torch.no_grad():
        torch.testing.assert_close(fused(net, x), layer_after_layer(net, x))


def test_nan_and_large_values_propagate():
    net = made()
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64)
    x[0, 1, 2, 3] = torch.nan
    x[1, 0] *= 1e30
    expected = layer_after_layer(net, x)
    torch.testing.assert_close(fused(net, x), expected, equal_nan=True)
    assert expected[0, :, 0:5, 1:6].isnan().all() and expected.isnan().sum() == 6 * 25
    assert torch.autograd.grad(fused(net, x).sum(), net.first.bias)[0].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_and_saturated_values(dtype):
    """Both ELUs are accurate relative to the value, however small it is."""
    net = made(1, 1, 1, dtype)
    with torch.no_grad():
        for layer in (net.first, net.second, net.last):
            gain, direction, bias = module._parameters(layer)
            direction.zero_()
            direction[:, :, direction.shape[2] // 2, direction.shape[3] // 2] = 1
            gain.fill_(1)
            bias.zero_()
    x = torch.tensor([1e30, 60, 1, 1e-3, 1e-30, 0, -1e-30, -1e-6, -1e-3, -0.1, -0.5, -1, -9, -60, -1e30], dtype=dtype)
    expected = F.elu(F.elu(x.double())).to(dtype)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(fused(net, x.view(1, 1, 3, 5))[0, 0].flatten(), expected, rtol=8 * eps, atol=0)


def test_the_same_for_any_number_of_threads(way):
    """Bitwise equal, including gradients: the compiled sums have a fixed order."""
    if way == "plain":
        pytest.skip("plain PyTorch's convolutions are a library's")
    net, x = made(3, 3, 32, torch.float32), torch.randn(40, 3, 16, 16, requires_grad=True)
    seed = torch.randn(40, 6, 16, 16)
    threads = torch.get_num_threads()
    found = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            found.append(results(fused, net, x, seed))
    finally:
        torch.set_num_threads(threads)
    for result in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], result, strict=True))


def test_operators(way):
    if way == "plain":
        pytest.skip("of compiled operators")
    net, x = made(), torch.randn(2, 2, 3, 4, dtype=torch.float64)
    weights = [tensor.detach() for layer in (net.first, net.second, net.last) for tensor in module._parameters(layer)]
    torch.library.opcheck(torch.ops.invertbench.convolutions.default, (x, weights, True))
    y, saved = torch.ops.invertbench.convolutions(x, weights, True)
    torch.library.opcheck(torch.ops.invertbench.convolutions_backward.default, (y, x, weights, saved))
    for wrong in ((x.bfloat16(), weights), (x[0], weights), (x[:, :1], weights), (x, weights[:8]), (x, weights[::-1])):
        with pytest.raises((TypeError, ValueError), match="convolutions"):
            torch.ops.invertbench.convolutions(*wrong, False)


def test_plain_pytorch_serves_the_rest():
    net = made(dtype=torch.float32)
    x = torch.randn(2, 2, 4, 4)
    torch.testing.assert_close(torch.func.vmap(lambda one: fused(net, one))(x[None])[0], layer_after_layer(net, x))
    with torch.autocast("cpu", torch.bfloat16):
        assert fused(net, x).dtype == torch.bfloat16
    sequences = WeightNormConditioner(2, 3, 5, axes=1)
    assert fused(sequences, x[..., 0]).shape == (2, 6, 4)
