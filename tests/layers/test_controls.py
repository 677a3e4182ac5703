"""The layers to compare with: a scale for each entry, and fixed orthogonal maps."""

import torch

from layers.fixed import Fixed
from layers.scale import Scale


def test_each_entry_has_a_separate_scale_and_none_is_mixed():
    layer = Scale((2, 3)).double()
    with torch.no_grad():
        layer.log_scale += torch.arange(6.0).reshape(2, 3)
    y, log_det = layer(torch.ones(1, 2, 3, dtype=torch.float64))
    powers = [1, 2.718281828459045, 7.38905609893065, 20.085536923187668, 54.598150033144236, 148.4131591025766]
    scales = torch.tensor(powers, dtype=torch.float64)
    torch.testing.assert_close(y.flatten(), scales)
    assert log_det == 15
    torch.testing.assert_close(layer.dense(), scales.diag())


def test_scales_start_as_the_identity():
    x = torch.randn(2, 3, 4, 4)
    y, log_det = Scale((3, 4, 4))(x)
    assert torch.equal(y, x) and log_det == 0


def test_a_permutation_moves_entries_across_channels_and_positions():
    torch.manual_seed(0)
    layer = Fixed((3, 4, 4))
    x = torch.arange(48.0).reshape(1, 3, 4, 4)
    y, log_det = layer(x)
    assert torch.equal(y.flatten().sort().values, x.flatten()) and not torch.equal(y, x)
    assert torch.equal(layer.inverse(y), x) and log_det == 0
    assert not list(layer.parameters())


def test_the_dct_takes_a_constant_to_one_coefficient_of_each_channel():
    layer = Fixed((2, 4, 4), map="dct").double()
    y = layer(torch.ones(1, 2, 4, 4, dtype=torch.float64))[0]
    expected = torch.zeros_like(y)
    expected[:, :, 0, 0] = 4
    torch.testing.assert_close(y, expected)
