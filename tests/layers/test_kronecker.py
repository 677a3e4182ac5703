import pytest
import torch

from layers.conv1x1 import Conv1x1
from layers.kronecker import Kronecker

MATRICES = {2: "Cc,Tt,nct->nCT", 3: "Cc,Hh,Ww,nchw->nCHW"}


@pytest.mark.parametrize("shape", [(3, 5), (3, 4, 2)])
def test_every_axis_has_a_matrix_whose_log_det_counts_once_for_each_vector(shape: tuple[int, ...], perturbed):
    layer = perturbed(Kronecker, shape)
    matrices = [part.dense() for part in layer]
    steps = [torch.Size(shape[axis + 1 :]).numel() for axis in range(len(shape))]
    small = [m[: n * step : step, : n * step : step] for m, n, step in zip(matrices, shape, steps, strict=True)]
    x = torch.randn(4, *shape, dtype=torch.float64)
    y, log_det = layer(x)
    torch.testing.assert_close(y, torch.einsum(MATRICES[len(shape)], *small, x))
    torch.testing.assert_close(
        log_det, sum(layer.dim / n * torch.linalg.slogdet(m)[1] for m, n in zip(small, shape, strict=True))
    )


def test_it_starts_at_the_1x1_convolution_and_an_axis_of_one_entry_has_no_matrix():
    torch.manual_seed(3)
    layer = Kronecker((5, 1))
    torch.manual_seed(3)  # the same draw
    torch.testing.assert_close(layer.dense(), Conv1x1((5, 1)).dense())
    assert sum(parameter.numel() for parameter in layer.parameters()) == 2 * 5**2 + 5
    assert [part.size for part in Kronecker((1, 7))] == [7] and [part.size for part in Kronecker((1, 1))] == [1]
