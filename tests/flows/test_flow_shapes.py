import pytest
import torch

from flows import Squeeze, UnsupportedEvent, level_shapes


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


def test_squeeze_of_an_image_gathers_blocks_of_two_by_two():
    x = torch.randn(2, 3, 4, 6)
    y, log_det = Squeeze((3, 4, 6))(x)
    assert y.shape == (2, 12, 2, 3)
    assert log_det.shape == () and log_det == 0
    for channel in range(3):
        for row in range(2):
            for column in range(2):
                assert torch.equal(y[:, 4 * channel + 2 * row + column], x[:, channel, row::2, column::2])


def test_squeeze_of_a_sequence_keeps_the_order_of_time_then_channel():
    x = torch.randn(2, 3, 8)
    y, log_det = Squeeze((3, 8))(x)
    assert y.shape == (2, 6, 4)
    assert log_det.shape == () and log_det == 0
    assert torch.equal(y[:, :3], x[:, :, 0::2])
    assert torch.equal(y[:, 3:], x[:, :, 1::2])
    assert torch.equal(y.transpose(1, 2).flatten(1), x.transpose(1, 2).flatten(1))


@pytest.mark.parametrize("shape", [(3, 4, 6), (1, 2, 2), (3, 8), (1, 2)])
def test_squeeze_is_a_permutation_with_its_inverse(shape, check_bijection):
    check_bijection(Squeeze(shape), torch.randn(2, *shape, dtype=torch.float64))


def test_one_position_cannot_be_squeezed():
    with pytest.raises(UnsupportedEvent, match=r"\(5, 1\): one position cannot be squeezed"):
        Squeeze((5, 1))
