"""Matrices of channels, and of every axis: CDFlow, Orthogonal, SVD and Kronecker."""

import cmath
import math

import pytest
import torch
from compared import follows

from layers import free_parameters
from layers.cdflow import CDFlow
from layers.conv1x1 import Conv1x1
from layers.kronecker import Kronecker
from layers.orthogonal import Orthogonal
from layers.svd import SVD

ORTHOGONAL = [(Orthogonal, {"parameterisation": way}) for way in ("householder", "cayley", "exponential")]


@pytest.mark.parametrize(("cls", "options"), [*ORTHOGONAL, (SVD, {}), (Kronecker, {})])
def test_it_starts_at_the_1x1_convolution(cls, options):
    torch.manual_seed(3)
    layer = cls((5, 1), **options)
    torch.manual_seed(3)  # the same draw
    torch.testing.assert_close(layer.dense(), Conv1x1((5, 1)).dense())
    assert layer.replaces_mixer


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
def test_cdflow_follows_its_definition(channels, diagonals, perturbed):
    layer = perturbed(CDFlow, (channels, 3), diagonals=diagonals)
    follows(layer, torch.kron(by_definition(layer), torch.eye(3, dtype=torch.float64)))
    assert free_parameters(layer) == (2 * diagonals - 1) * channels


@pytest.mark.parametrize("channels", [1, 2, 5, 12])
def test_cdflow_starts_orthogonal_and_replaces_the_mixer(channels):
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


@pytest.mark.parametrize(("cls", "options"), ORTHOGONAL)
def test_orthogonal_matrices_stay_orthogonal(cls, options, perturbed):
    layer = perturbed(cls, (5, 4), 3.0, **options)
    weight = layer.matrix()
    torch.testing.assert_close(weight @ weight.T, torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-13)
    torch.testing.assert_close(layer.dense()[::4, ::4], weight, rtol=0, atol=1e-12)


def test_cayley_and_exponential_agree_to_first_order_only(perturbed):
    cayley, exponential = (perturbed(cls, (5, 4), 0.0, **options) for cls, options in ORTHOGONAL[1:])
    with torch.no_grad():
        cayley.lower[1, 0], exponential.lower[1, 0] = 1e-4, -2e-4
    torch.testing.assert_close(cayley.matrix(), exponential.matrix(), rtol=0, atol=1e-11)
    with torch.no_grad():
        cayley.lower[1, 0], exponential.lower[1, 0] = 1.0, -torch.pi / 2  # a quarter turn: tan(angle / 2)
    torch.testing.assert_close(cayley.matrix(), exponential.matrix(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bound", [1.5, 100.0])
def test_singular_values_stay_in_the_interval_and_are_those_of_the_matrix(bound: float, perturbed):
    layer = perturbed(SVD, (6, 2), 3.0, bound=bound)
    with torch.no_grad():
        layer.a[:2] = torch.tensor([1e4, -1e4])
    values = torch.linalg.svdvals(layer.dense()[::2, ::2])
    torch.testing.assert_close(values, layer.log_s().exp().sort(descending=True).values)
    torch.testing.assert_close(values[[0, -1]], torch.tensor([bound, 1 / bound], dtype=torch.float64))
    x = torch.randn(8, 6, 2)
    layer.float()
    torch.testing.assert_close(layer.inverse(layer(x)[0]), x, rtol=0, atol=bound**2 * 3e-6)


def test_svd_starts_with_the_log_det_0_and_refuses_wrong_bounds():
    assert SVD((5, 4)).log_det() == 0
    for bound in (1.0, 0.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="svd: bound"):
            SVD((4, 2), bound=bound)


@pytest.mark.parametrize("shape", [(3, 5), (3, 4, 2)])
def test_kronecker_has_a_matrix_for_every_axis(shape, perturbed):
    layer = perturbed(Kronecker, shape)
    matrix, step = torch.ones(1, 1, dtype=torch.float64), math.prod(shape)
    for part, size in zip(layer, shape, strict=True):
        step //= size
        matrix = torch.kron(matrix, part.dense()[: size * step : step, : size * step : step])
    follows(layer, matrix)


def test_an_axis_of_one_entry_has_no_matrix():
    assert sum(parameter.numel() for parameter in Kronecker((5, 1)).parameters()) == 2 * 5**2 + 5
    assert [part.size for part in Kronecker((1, 7))] == [7] and [part.size for part in Kronecker((1, 1))] == [1]
