"""The reach of couplings of sequences, and attention, whose transformer equals PyTorch's."""

import pytest
import torch

from flows.affine import bounded_gate, doubled_gate
from flows.attention import AttentionConditioner
from flows.conditioners import ReachingConditioner
from flows.couplings import make_coupling

REACHES = [1, 3, 9, 27, 81, "all"]
LENGTH = 99  # more than the largest reach, so that its ends are inside


def seen_from(coupling, position):
    """Return the positions of kept channels on which the moved channels of one position depend."""
    x = torch.randn(1, 4, LENGTH, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: coupling(x)[0][0, coupling.kept :, position], x)
    return set(jacobian[:, 0, : coupling.kept].abs().amax((0, 1)).nonzero().flatten().tolist())


@pytest.mark.parametrize("reach", REACHES)
def test_a_coupling_sees_as_far_as_its_reach_and_no_further(reach, perturb):
    coupling = perturb(make_coupling("sequence", (4, LENGTH), 32, reach=reach))
    side = LENGTH if reach == "all" else reach // 2
    for position in (0, LENGTH // 2, LENGTH - 1):
        expected = range(max(0, position - side), min(LENGTH, position + side + 1))
        assert seen_from(coupling, position) == set(expected), position


@pytest.mark.parametrize("reach", REACHES)
def test_a_coupling_of_any_reach_is_a_bijection(reach, perturb, check_bijection):
    check_bijection(perturb(make_coupling("sequence", (3, 12), 24, "bounded", reach)), torch.randn(2, 3, 12).double())


def test_all_reaches_have_nearly_equal_parameters():
    for shape in [(4, 128), (8, 256), (16, 64)]:
        counts = [
            sum(value.numel() for value in make_coupling("sequence", shape, 32, reach=reach).parameters())
            for reach in REACHES
        ]
        assert max(counts) <= 1.12 * min(counts), (shape, counts)
    # So that a network is drawn as if it were built at its width.
    torch.manual_seed(0)
    net = make_coupling("sequence", (4, 32), 32, reach=9).net
    torch.manual_seed(0)
    again = ReachingConditioner(2, 2, net.shift[0].out_channels, 9)
    assert all(map(torch.equal, net.parameters(), again.parameters()))


def test_attention_too_narrow_to_see_anything_is_refused():
    """Layer normalisation of one channel is zero."""
    with pytest.raises(ValueError, match=r"\(4, 99\) at width 8: attention .* a width of 1, and .* at least 4"):
        make_coupling("sequence", (4, LENGTH), 8, reach="all")


@pytest.mark.parametrize(("coupling", "shape"), [("image", (4, 6, 6)), ("auto", (4, 6, 6)), ("attention", (4, 9))])
def test_other_couplings_have_no_reach(coupling, shape):
    with pytest.raises(ValueError, match=r"reach 9 .* only couplings of sequences .* leave reach at 1"):
        make_coupling(coupling, shape, 8, reach=9)
    with pytest.raises(ValueError, match="reach = 5 is unknown; use one of 1, 3, 9, 27, 81, 'all'"):
        make_coupling(coupling, shape, 8, reach=5)


def network(perturb, width=8, positions=6, gate=doubled_gate):
    return perturb(AttentionConditioner(2, 3, width, positions, gate))


@pytest.mark.parametrize(("width", "heads", "gate"), [(8, 4, doubled_gate), (6, 2, bounded_gate), (5, 1, doubled_gate)])
def test_blocks_equal_the_encoder_layers_of_pytorch(width, heads, gate, perturb, encoder_layer):
    net = network(perturb, width, gate=gate)
    kept = torch.randn(3, 2, 6, dtype=torch.float64)
    tokens = torch.stack([kept[..., place].matmul(net.first.weight.T) for place in range(6)], 1)
    tokens = tokens + net.first.bias + net.position
    for block in net.blocks:
        tokens = encoder_layer(block, width, heads)(tokens)
    shift, s = net.last(net.norm(tokens)).transpose(1, 2).chunk(2, dim=1)
    log_scale, moved = net(kept)
    torch.testing.assert_close(log_scale, gate(s))
    torch.testing.assert_close(moved, shift * gate(s).exp())


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
