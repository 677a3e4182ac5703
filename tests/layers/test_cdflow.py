import cmath
import math

import pytest
import torch

from layers import free_parameters
from layers.cdflow import CDFlow


def by_definition(layer):
    """Return D_1 C_1 D_2 ... D_m, every circulant matrix entry by entry from its spectrum."""
    c = layer.channels
    weight = torch.diag(layer.scales[0])
    for packed, scale in zip(layer.spectra.tolist(), layer.scales[1:], strict=True):
        spectrum = [complex(packed[k]) for k in range(c // 2 + 1)]
        for k, imaginary in enumerate(packed[c // 2 + 1 :], start=1):
            spectrum[k] += 1j * imaginary
        spectrum += [spectrum[c - k].conjugate() for k in range(c // 2 + 1, c)]
        waves = [[s * cmath.exp(2j * math.pi * j * k / c) / c for k, s in enumerate(spectrum)] for j in range(c)]
        column = [sum(terms) for terms in waves]
        assert all(abs(entry.imag) < 1e-12 for entry in column)
        weight = weight @ torch.tensor(
            [[column[(i - j) % c].real for j in range(c)] for i in range(c)], dtype=torch.float64
        )
        weight = weight @ torch.diag(scale)
    return weight


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("diagonals", [1, 2, 4])
@torch.no_grad()
def test_against_the_definition(channels, diagonals, perturbed):
    layer = perturbed(CDFlow, (channels, 3), diagonals=diagonals)
    weight = by_definition(layer)
    x = torch.randn(2, channels, 3, dtype=torch.float64)
    y, log_det = layer(x)
    torch.testing.assert_close(y, weight @ x)
    torch.testing.assert_close(log_det, 3 * torch.linalg.slogdet(weight).logabsdet)
    torch.testing.assert_close(layer.inverse(y), x)
    torch.testing.assert_close(layer.dense(), torch.kron(weight, torch.eye(3, dtype=torch.float64)))
    assert free_parameters(layer) == (2 * diagonals - 1) * channels


@pytest.mark.parametrize("channels", [1, 2, 5, 12])
def test_it_starts_orthogonal_and_replaces_the_mixer(channels):
    torch.manual_seed(3)
    layer = CDFlow((channels, 4)).double()
    weight = layer.matrix()
    torch.testing.assert_close(weight @ weight.T, torch.eye(channels, dtype=torch.float64), rtol=0, atol=1e-6)
    assert layer.replaces_mixer


@pytest.mark.parametrize("name", ["scales", "spectra"])
def test_a_factor_with_a_zero_is_singular(name):
    layer = CDFlow((4, 3))
    with torch.no_grad():
        getattr(layer, name)[0, 0] = 0
    assert layer.log_det() == -math.inf
