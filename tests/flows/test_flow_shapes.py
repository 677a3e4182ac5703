"""Shapes of levels, squeezes, and the fixed permutation before the first level of a flow."""

import pytest
import torch

from flows import Glow, Permutation, Squeeze, UnsupportedEvent, level_shapes


@pytest.mark.parametrize(
    ("shape", "levels", "expected"),
    [
        ((3, 32, 32), 3, [(12, 16, 16), (24, 8, 8), (48, 4, 4)]),
        ((1, 28, 28), 2, [(4, 14, 14), (8, 7, 7)]),
        ((2, 1024), 2, [(4, 512), (4, 256)]),
        ((3, 8), 3, [(6, 4), (6, 2), (6, 1)]),
        ((1, 4, 6), 1, [(4, 2, 3)]),
        ((5, 1), 1, [(5, 1)]),
        ((6, 1, 1), 1, [(6, 1, 1)]),
    ],
)
def test_level_shapes(shape, levels, expected):
    assert level_shapes(shape, levels) == expected


@pytest.mark.parametrize(
    ("shape", "levels", "parts"),
    [
        ((1, 28, 28), 3, ["(1, 28, 28)", "levels = 3", "divide 28 and 28", "at most 2 levels"]),
        ((1, 7, 8), 1, ["must divide 7 and 8; pad the data to even lengths"]),  # no number of levels is suggested
        ((1, 8, 8), 2_000_000_000, ["levels = 2000000000: ", "use at most 3"]),  # at once: 2^levels is not computed
        ((8, 1), 2, ["(8, 1)", "levels = 2", "one position", "use levels = 1"]),
        ((1, 1), 1, ["(1, 1)", "one entry has no other", "two or more"]),
        ((3,), 1, ["(3,)", "(channels, length)"]),
        ((3, 0, 4), 1, ["(3, 0, 4)", "positive"]),
        ((3, 4.0), 1, ["4.0", "whole"]),
        ((3, 4, 4), 0, ["levels = 0", "at least 1"]),
        ((3, 4, 4), True, ["levels = True"]),
    ],
)
def test_refusals_name_value_rule_and_alternative(shape, levels, parts):
    with pytest.raises(UnsupportedEvent) as caught:
        level_shapes(shape, levels)
    assert isinstance(caught.value, ValueError)
    for part in parts:
        assert part in str(caught.value)


def test_squeeze_gathers_blocks_of_an_image_and_times_of_a_sequence():
    x = torch.randn(2, 3, 4, 6)
    y, log_det = Squeeze((3, 4, 6))(x)
    assert y.shape == (2, 12, 2, 3)
    assert log_det.shape == () and log_det == 0
    for channel in range(3):
        for row in range(2):
            for column in range(2):
                assert torch.equal(y[:, 4 * channel + 2 * row + column], x[:, channel, row::2, column::2])
    x = torch.randn(2, 3, 8)
    y, log_det = Squeeze((3, 8))(x)
    assert y.shape == (2, 6, 4)
    assert log_det.shape == () and log_det == 0
    assert torch.equal(y[:, :3], x[:, :, 0::2])
    assert torch.equal(y[:, 3:], x[:, :, 1::2])
    assert torch.equal(y.transpose(1, 2).flatten(1), x.transpose(1, 2).flatten(1))
    with pytest.raises(UnsupportedEvent, match=r"\(5, 1\): one position cannot be squeezed"):
        Squeeze((5, 1))


SMALL = {"levels": 2, "steps": 1, "width": 4}


def shuffled(dim, seed=0):
    return torch.randperm(dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(3, 2, 4), (2, 8), (1, 1)])
def test_entries_are_permuted_and_restored(shape):
    dim = torch.Size(shape).numel()
    order = shuffled(dim)
    module = Permutation(shape, order.tolist())
    x = torch.randn(5, *shape)
    y, log_det = module(x)
    assert y.shape == x.shape and log_det.shape == () and log_det == 0
    for event, moved in zip(x.flatten(1), y.flatten(1), strict=True):
        assert moved.tolist() == [event[place].item() for place in order]
    assert torch.equal(module.inverse(y), x)
    assert torch.equal(module(module.inverse(x))[0], x)
    assert not list(module.parameters()) and list(module.state_dict()) == ["order"]
    assert module.double().order.dtype == torch.long


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 1, 2, 2], [1, 2, 3, 4], [[0, 1], [2, 3]], [0, 1, 2, 3, 4]])
def test_invalid_permutations_are_refused(order):
    with pytest.raises(ValueError, match=r"not a permutation of the 4 entries of events \(1, 4\).*each of 0..3 once"):
        Permutation((1, 4), order)


@pytest.mark.parametrize("shape", [(2, 4, 4), (2, 8)])
def test_the_following_flow_receives_permuted_examples(shape, everywhere, channelwise, perturb, check_bijection):
    order = shuffled(torch.Size(shape).numel())
    plain = perturb(Glow(shape, everywhere, channelwise, prior="learned", **SMALL))
    behind = Glow(shape, everywhere, channelwise, prior="learned", order=order, **SMALL).double()
    behind.load_state_dict(plain.state_dict() | {"permutation.order": order})
    x = torch.randn(3, *shape).double()
    moved = Permutation(shape, order)(x)[0]
    assert all(torch.equal(a, b) for a, b in zip(behind(x), plain(moved), strict=True))
    check_bijection(behind, x)
    draws = [flow.sample(4, generator=torch.Generator().manual_seed(1)) for flow in (plain, behind)]
    assert torch.equal(draws[0], Permutation(shape, order)(draws[1])[0])
    path, module, value = next(behind.trace(x))
    assert path == "permutation" and isinstance(module, Permutation) and torch.equal(value, x)
    assert [part[0] for part in behind.trace(x)][1:] == [part[0] for part in plain.trace(x)]
