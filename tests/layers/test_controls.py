"""The layers to compare with: a scale for each entry, and fixed maps."""

import pytest
import torch
from sklearn.covariance import LedoitWolf

from layers.fixed import Fixed
from layers.linalg.whitening import FLOOR, whitening_matrix
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
    x = torch.randn(2, 3, 4, 4)
    y, log_det = Scale((3, 4, 4))(x)
    assert torch.equal(y, x) and log_det == 0


def test_fixed_maps_are_a_permutation_of_entries_a_dct_and_a_reversal_of_channels():
    torch.manual_seed(0)
    layer = Fixed((3, 4, 4))
    x = torch.arange(48.0).reshape(1, 3, 4, 4)
    y, log_det = layer(x)
    assert torch.equal(y.flatten().sort().values, x.flatten()) and not torch.equal(y, x)
    assert torch.equal(layer.inverse(y), x) and log_det == 0
    assert not list(layer.parameters())
    layer = Fixed((2, 4, 4), map="dct").double()
    y = layer(torch.ones(1, 2, 4, 4, dtype=torch.float64))[0]
    expected = torch.zeros_like(y)
    expected[:, :, 0, 0] = 4
    torch.testing.assert_close(y, expected)
    x = torch.arange(24.0).reshape(1, 3, 2, 4)
    assert torch.equal(Fixed((3, 2, 4), map="reverse")(x)[0], x[:, [2, 1, 0]])


def test_rotations_are_drawn_anew_and_have_determinant_one():
    for seed in range(4):
        torch.manual_seed(seed)
        matrix = Fixed((5, 3), map="rotation").double().weight
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(5).double(), rtol=0, atol=1e-6)
        torch.testing.assert_close(torch.linalg.det(matrix), torch.ones(()).double())
    first = torch.stack([Fixed((3, 1), map="rotation").weight[0, 0] for _ in range(4000)])
    torch.testing.assert_close(first.histc(3, -1, 1) / 4000, torch.full((3,), 1 / 3), rtol=0, atol=0.03)  # on a sphere


def mixed(channels: int, events: int, positions: int = 1, seed: int = 0) -> torch.Tensor:
    """Return correlated events, of a mean far from 0 and of units that differ by 10^6."""
    draws = torch.Generator().manual_seed(seed)
    mixing = torch.eye(channels) + torch.randn(channels, channels, generator=draws) / channels**0.5
    units = torch.logspace(-3, 3, channels)[None, :, None]
    return units * (3 + mixing @ torch.randn(events, channels, positions, generator=draws))


def test_whitening_is_fitted_to_one_minibatch_and_whitens_others():
    layer = Fixed((6, 4), map="whitening")
    x = mixed(6, 4000, 4)
    assert torch.equal(layer(x)[0], x) and layer.log_det() == 0
    with torch.no_grad():
        layer.initialise(x)
    loaded = Fixed((6, 4), map="whitening")
    loaded.load_state_dict(layer.state_dict())
    others = torch.cat([*loaded(mixed(6, 4000, 4) - 1)[0].unbind(2)])
    torch.testing.assert_close(others.T.cov(), torch.eye(6), rtol=0, atol=0.02)
    assert not list(layer.parameters())
    torch.testing.assert_close(layer.inverse(layer(x)[0]) / x, torch.ones_like(x), rtol=0, atol=2e-2)
    x = mixed(20, 2)  # both have the same distance from their mean: nothing says how uncertain the correlations are
    x[:, 4] = 7  # constant
    weight = whitening_matrix(x)
    others = weight * x[:, :, 0].double().std(0, correction=0)
    others[4, 4] = 1
    torch.testing.assert_close(torch.linalg.cond(others), torch.tensor(FLOOR**-0.5).double(), rtol=1e-2, atol=0)
    torch.testing.assert_close(weight[4, 4], torch.tensor(1.0).double())


@pytest.mark.parametrize("events", [8, 64, 4000])
def test_few_events_are_shrunk_as_ledoit_and_wolf_do(events: int):
    x = mixed(20, events)
    std = x[:, :, 0].double().std(0, correction=0)
    z = (x[:, :, 0] - x[:, :, 0].double().mean(0)) / std
    expected = torch.from_numpy(LedoitWolf(assume_centered=True).fit(z.numpy()).covariance_)
    weight = whitening_matrix(x) * std
    torch.testing.assert_close(torch.linalg.inv(weight.T @ weight), expected)
