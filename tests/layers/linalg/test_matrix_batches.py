"""Batches of large matrices on several threads, for which torch's batched LU is wrong."""

import numpy as np
import pytest
import torch

from layers.linalg.plu import LARGEST, PLUMatrices, by_matrix, random_rotations
from layers.periodic import Periodic


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def matrices(count, size, dtype=torch.float64):
    torch.manual_seed(0)
    return torch.randn(count, size, size, dtype=dtype) + size**0.5 * torch.eye(size, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("size", [LARGEST, LARGEST + 1, 160, 200])
def test_determinants_equal_those_of_single_matrices(size, dtype):
    batch = matrices(8, size, dtype)
    log_dets = by_matrix(lambda batch: torch.linalg.slogdet(batch).logabsdet, batch)
    np.testing.assert_allclose(log_dets, np.linalg.slogdet(batch.numpy()).logabsdet, rtol=1e-4)


def test_gradients_several_arguments_and_results_are_batched():
    batch, right = matrices(3, 160), torch.randn(3, 160, 2, dtype=torch.float64)
    solution = by_matrix(torch.linalg.solve, batch, right)
    torch.testing.assert_close(batch @ solution, right)
    permutation, lower, upper = by_matrix(lambda batch: tuple(torch.linalg.lu(batch)), batch)
    torch.testing.assert_close(permutation @ lower @ upper, batch)
    assert by_matrix(torch.linalg.det, matrices(0, 160)).shape == (0,)
    batch = matrices(4, 160).requires_grad_()
    by_matrix(lambda batch: torch.linalg.slogdet(batch).logabsdet, batch).sum().backward()
    np.testing.assert_allclose(batch.grad, np.linalg.inv(batch.detach().numpy()).transpose(0, 2, 1), atol=1e-9)


def test_periodic_convolutions_and_plu_factors_of_many_channels():
    torch.manual_seed(0)
    layer = Periodic((160, 3, 3))
    x = torch.randn(2, 160, 3, 3)
    y, log_det = layer(x)
    exact = sum(np.linalg.slogdet(layer.double().dense().detach().numpy())[1:])
    assert log_det.item() == pytest.approx(exact, rel=1e-4, abs=1e-2)
    layer.float()
    for inverse in (layer.inverse, layer.inverter()):
        torch.testing.assert_close(inverse(y), x, atol=1e-3, rtol=1e-3)
    many = torch.randn(200, 160, 3, 3)  # more than channels: by the inverse itself
    torch.testing.assert_close(layer.inverse(layer(many)[0]), many, atol=1e-3, rtol=1e-3)
    rotations = random_rotations(3, 160)
    torch.testing.assert_close(torch.linalg.det(rotations[0]), torch.ones((), dtype=torch.float64))
    held = PLUMatrices(rotations).double()
    torch.testing.assert_close(held.matrices(), rotations, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(held.inverse_matrices(), rotations.transpose(1, 2), atol=1e-5, rtol=1e-4)
