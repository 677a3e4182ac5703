import torch

from layers.fixed import Fixed


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
