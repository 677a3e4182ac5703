"""Autoregressive blocks: the Jacobian is triangular in the order of the positions, and has the claimed log-det."""

import itertools
import math

import pytest
import torch
from torch import nn

from flows import Autoregressive, Glow, UnsupportedEvent
from flows.affine import bounded_gate, exponential_gate
from flows.attention import BLOCKS, Block
from flows.backbones.autoregressive import AutoregressiveBlock
from layers.fixed import Fixed

SMALL = {"levels": 1, "steps": 3, "width": 8}


def jacobian(module, event):
    """Return d y / d x of one event, (positions, c, positions, c): outputs first."""
    channels = event.shape[0]
    found = torch.autograd.functional.jacobian(lambda x: module(x[None])[0][0], event)
    found = found.reshape(channels, -1, channels, event[0].numel())
    return found.permute(1, 0, 3, 2)


@pytest.mark.parametrize(
    ("shape", "levels"), [((1, 4, 4), 1), ((2, 8, 4), 1), ((2, 8), 1), ((3, 16), 2), ((1, 8, 8), 2)]
)
def test_a_flow_is_a_bijection_with_its_log_det(shape, levels, everywhere, channelwise, perturb, check_bijection, case):
    for gate, turn, mixer in itertools.product(("published", "bounded"), (True, False), (None, channelwise)):
        with case(gate=gate, turn=turn, mixer=mixer):
            flow = Autoregressive(shape, everywhere, mixer, levels=levels, steps=2, width=8, gate=gate, turn=turn)
            x = torch.randn(2, *shape, dtype=torch.float64)
            perturb(flow, 0.3 if gate == "bounded" else 0.1)  # inverses of published scales explode
            check_bijection(flow, x)
            z, log_det = flow(x)
            assert z.shape == (2, flow.dim) and log_det.shape == (2,)
            prior = -0.5 * (z.square() + math.log(2 * math.pi)).sum(1)
            torch.testing.assert_close(flow.log_prob(x), prior + log_det)


@pytest.mark.parametrize("shape", [(2, 2, 3), (3, 5)])
def test_a_position_depends_on_itself_by_its_scale_and_on_all_before_it(shape, perturb):
    """A mask off by one, to either side, would show here: above the diagonal, or just below it."""
    block = perturb(AutoregressiveBlock(shape, 8, exponential_gate))
    event = torch.randn(shape, dtype=torch.float64)
    found = jacobian(block, event)
    positions = len(found)
    for later, earlier in itertools.product(range(positions), repeat=2):
        part = found[later, :, earlier]
        if later < earlier:
            assert not part.any(), "a later position"
        elif later == earlier:
            assert torch.equal(part, part.diagonal().diag()), "another entry of the same position"
        else:
            assert part.all(), "an earlier position without effect"
    diagonal = found.diagonal(dim1=0, dim2=2).diagonal(dim1=0, dim2=1)
    torch.testing.assert_close(block(event[None])[1], diagonal.log().sum()[None])
    assert torch.equal(diagonal[0], torch.ones_like(diagonal[0])), "nothing precedes the first position"


def test_blocks_equal_the_encoder_layers_of_pytorch_with_a_causal_mask(perturb, encoder_layer):
    channels, positions, width = 2, 6, 8
    block = perturb(AutoregressiveBlock((channels, positions), width, bounded_gate))
    x = torch.randn(3, channels, positions, dtype=torch.float64)
    tokens = x.mT[:, :-1] @ block.first.weight.T + block.first.bias + block.position
    mask = nn.Transformer.generate_square_subsequent_mask(positions - 1).double()
    for inner in block.blocks:
        tokens = encoder_layer(inner, width, 4)(tokens, src_mask=mask)
    s, shift = block.last(tokens).chunk(2, dim=2)
    expected = (x.mT[:, 1:] + shift) * (0.5 + torch.sigmoid(s))
    y, log_det = block(x)
    torch.testing.assert_close(y.mT[:, 1:], expected)
    torch.testing.assert_close(log_det, (0.5 + torch.sigmoid(s)).log().sum((1, 2)))


@pytest.mark.parametrize("shape", [(4, 3, 3), (2, 9)])
def test_samples_position_by_position_are_those_of_the_whole(shape, perturb, monkeypatch):
    block = perturb(AutoregressiveBlock(shape, 8, bounded_gate))
    y = torch.randn(3, *shape, dtype=torch.float64)
    projected, projections = [], Block._projections
    with monkeypatch.context() as patch:
        patch.setattr(Block, "_projections", lambda self, x: (projected.append(x.shape[1]), projections(self, x))[1])
        x = block.inverse(y)
    assert projected == [1] * 8 * BLOCKS, "keys and values of earlier positions are kept"
    torch.testing.assert_close(block(x)[0], y)
    (gradient,) = torch.autograd.grad(x.sum(), block.last.weight)
    assert gradient.isfinite().all() and gradient.any(), "the inverse is differentiable"


def blocks_of(flow, x):
    """Return (block, what arrives at it), of the three of a flow."""
    found = [(module, value) for path, module, value in flow.trace(x) if path.endswith("/block")]
    assert len(found) == SMALL["steps"]
    return found


@pytest.mark.parametrize("gate", ["published", "bounded"])
def test_blocks_start_as_the_identity(gate):
    flow = Autoregressive((2, 8), lambda shape: Fixed(shape, map="turn"), **SMALL, gate=gate, turn=False)
    for block, value in blocks_of(flow, torch.randn(2, 2, 8)):
        y, log_det = block(value)
        assert torch.equal(y, value) and not log_det.any()


@pytest.mark.parametrize(("gate", "strength"), [("bounded", 20.0), ("published", 0.5)])
def test_only_bounded_scales_stay_in_their_range(gate, strength, perturb):
    flow = perturb(Autoregressive((2, 8), lambda shape: Fixed(shape, map="turn"), **SMALL, gate=gate), strength)
    for block, value in blocks_of(flow, 3 * torch.randn(4, 2, 8, dtype=torch.float64)):
        scales = jacobian(block, value[0]).diagonal(dim1=0, dim2=2).diagonal(dim1=0, dim2=1)[1:]
        within = (scales >= 0.5) & (scales <= 1.5)
        assert within.all() if gate == "bounded" else not within.all()


def test_a_block_has_two_transformer_layers_with_xavier_weights_and_second_derivatives(perturb):
    block = AutoregressiveBlock((2, 8), 8, bounded_gate)
    assert len(block.blocks) == 2
    for name, weight in block.named_parameters():
        if "norm" in name or "perceptron.0" in name or name == "position" or name.startswith("last"):
            continue
        if weight.ndim == 2:
            limit = math.sqrt(6 / sum(weight.shape))
            assert 0.8 * limit < weight.abs().max() <= limit, name
        else:
            assert not weight.any(), name
    block = perturb(AutoregressiveBlock((1, 3), 4, bounded_gate))
    x = torch.randn(1, 1, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(block, x)


def test_layers_stand_between_blocks_and_are_followed_by_the_turn(channelwise):
    def paths(**options):
        flow = Autoregressive((1, 8, 8), channelwise, **SMALL, **options)
        return flow, [path for path, _ in flow.parts()[0]]

    flow, with_turn = paths(make_mixer=channelwise)
    assert with_turn == [
        "squeeze0", "step0/actnorm", "step0/block",
        "step1/mixer", "step1/layer", "step1/turn", "step1/actnorm", "step1/block",
        "step2/mixer", "step2/layer", "step2/turn", "step2/actnorm", "step2/block",
    ]  # fmt: skip
    assert [path for path, _ in flow.linear_layers()] == ["step1/mixer", "step1/layer", "step2/mixer", "step2/layer"]
    assert flow.level_shapes == [(4, 4, 4)] and not flow.splits
    _, without = paths(turn=False)
    assert without == [path for path in with_turn if not path.endswith(("/turn", "/mixer"))]
    flow = Autoregressive((1, 4, 6), channelwise, levels=1, steps=2, width=8)
    turn, x = dict(flow.parts()[0])["step1/turn"], torch.arange(24.0).view(1, 4, 2, 3)
    y, log_det = turn(x)
    assert y.flatten(2)[0, :2].tolist() == [[5, 4, 3, 2, 1, 0], [11, 10, 9, 8, 7, 6]] and log_det == 0
    assert torch.equal(Fixed((4, 2, 3), map="turn")(x)[0], y)


def test_an_order_is_undone_first(everywhere):
    order = torch.randperm(8)
    flow = Autoregressive((2, 4), everywhere, levels=1, steps=2, width=8, order=order)
    plain = Autoregressive((2, 4), everywhere, levels=1, steps=2, width=8)
    x = torch.randn(2, 2, 4)
    assert torch.equal(flow(x)[0], plain(x.flatten(1)[:, order].view(2, 2, 4))[0])


def test_patches_have_all_their_entries_as_channels():
    assert Autoregressive.layer_shapes((3, 16, 8), 2) == [(48, 4, 2)]
    assert Autoregressive.layer_shapes((2, 16), 3) == [(16, 2)]
    flow = Autoregressive((3, 16, 8), lambda shape: Fixed(shape), levels=2, steps=2, width=8)
    assert flow.level_shapes == [(48, 4, 2)] != Glow((3, 16, 8), Fixed, levels=2, steps=1, width=8).level_shapes


@pytest.mark.parametrize(
    ("shape", "levels", "message"),
    [
        ((1, 4, 4), 2, "at least two positions after 2 squeezes; use levels = 1"),
        ((5, 1), 1, "at least two positions after 1 squeeze; use the backbone glow, or a baseline"),
        ((1, 6, 6), 2, "must divide 6 and 6"),
    ],
)
def test_events_without_an_order_are_refused(shape, levels, message, channelwise):
    with pytest.raises(UnsupportedEvent, match=message):
        Autoregressive(shape, channelwise, levels=levels, steps=2, width=8)


@pytest.mark.parametrize(
    ("options", "message"), [({"steps": 1}, "a whole number from 2 up"), ({"gate": "open"}, "'published', 'bounded'")]
)
def test_options_that_make_no_flow_are_refused(options, message, channelwise):
    with pytest.raises(ValueError, match=message):
        Autoregressive((2, 8), channelwise, **SMALL | options)
