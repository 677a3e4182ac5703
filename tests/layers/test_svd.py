import pytest
import torch

from layers.conv1x1 import Conv1x1
from layers.svd import SVD


def test_it_starts_at_the_matrix_of_the_1x1_convolution():
    torch.manual_seed(3)
    layer = SVD((5, 4))
    torch.manual_seed(3)  # the same draw
    torch.testing.assert_close(layer.dense(), Conv1x1((5, 4)).dense())
    assert layer.log_det() == 0 and layer.replaces_mixer
    for bound in (1.0, 0.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="svd: bound"):
            SVD((4, 2), bound=bound)


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
