"""The transformer of attention couplings equals PyTorch's, and can be differentiated twice."""

import pytest
import torch

from flows import make_coupling
from flows.attention import AttentionConditioner


def network(perturb, kept=2, moved=3, width=8, positions=6):
    return perturb(AttentionConditioner(kept, moved, width, positions))


@pytest.mark.parametrize(("width", "heads"), [(8, 4), (6, 2), (5, 1)])
def test_blocks_equal_the_encoder_layers_of_pytorch(width, heads, perturb, encoder_layer):
    net = network(perturb, width=width)
    kept = torch.randn(3, 2, 6, dtype=torch.float64)
    tokens = torch.stack([kept[..., place].matmul(net.first.weight.T) for place in range(6)], 1)
    tokens = tokens + net.first.bias + net.position
    for block in net.blocks:
        tokens = encoder_layer(block, width, heads)(tokens)
    shift, s = net.last(net.norm(tokens)).transpose(1, 2).chunk(2, dim=1)
    log_scale, moved = net(kept)
    torch.testing.assert_close(log_scale.exp(), 2 * torch.sigmoid(s))
    torch.testing.assert_close(moved, shift * 2 * torch.sigmoid(s))


@pytest.mark.parametrize("shape", [(4, 3, 3), (4, 6), (4, 1)])
def test_it_starts_as_the_identity(shape):
    x = torch.randn(2, *shape)
    y, log_det = make_coupling("attention", shape, 8)(x)
    assert torch.equal(y, x) and torch.equal(log_det, torch.zeros(2))


def test_second_derivatives(perturb):
    net = network(perturb, positions=3)
    kept = torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(net, kept)


@pytest.mark.system  # tracing takes seconds
def test_a_compiled_network_has_the_same_values_and_gradients(perturb):
    net = network(perturb)
    kept = torch.randn(2, 2, 6, dtype=torch.float64, requires_grad=True)
    outcomes = []
    for call in (net, torch.compile(net, backend="aot_eager", fullgraph=True)):
        log_scale, moved = call(kept)
        loss = log_scale.square().sum() + moved.sum()
        outcomes.append([log_scale, moved, *torch.autograd.grad(loss, [kept, *net.parameters()])])
    torch.testing.assert_close(outcomes[1], outcomes[0])
