import pytest
import torch

from layers.finc import FInC
from layers.kernels import load as kernels


def test_each_group_depends_on_itself_and_its_corner(perturbed):
    layer = perturbed(FInC, (8, 4, 5), 0.2, kernel_size=2)
    place = 2 * 5 + 2  # of a pixel inside
    channels = layer.dense().reshape(4, 2, 20, 4, 2, 20)
    seen = [
        {(p // 5 - 2, p % 5 - 2) for p in range(20) if channels[group, :, place, group, :, p].any()}
        for group in range(4)
    ]
    for group, (down, right) in enumerate([(1, 1), (1, -1), (-1, 1), (-1, -1)]):
        assert seen[group] == {(a, b) for a in (0, down) for b in (0, right)}
        others = channels[group].clone()
        others[:, :, group] = 0
        assert not others.any()
    layer = perturbed(FInC, (4, 6), 0.2, kernel_size=3)
    channels = layer.dense().reshape(2, 2, 6, 2, 2, 6)
    assert all(torch.equal(block, block.triu()) for block in channels[0, :, :, 0].permute(0, 2, 1, 3).flatten(0, 1))
    assert all(torch.equal(block, block.tril()) for block in channels[1, :, :, 1].permute(0, 2, 1, 3).flatten(0, 1))


@pytest.mark.parametrize("shape", [(5, 4, 6), (8, 3, 3), (2, 5, 2), (3, 9)])
@pytest.mark.parametrize("kernel_size", [2, 3, 6])
def test_the_determinant_is_1_and_both_solves_are_exact(shape, kernel_size, monkeypatch, perturbed):
    layer = perturbed(FInC, shape, 0.2, kernel_size=kernel_size)
    assert torch.linalg.slogdet(layer.dense()).logabsdet.abs() < 1e-10
    y = torch.randn(3, *shape, dtype=torch.float64)
    expected = torch.linalg.solve(layer.dense(), y.flatten(1).T).T.reshape(y.shape)
    torch.testing.assert_close(layer.inverse(y), expected)
    monkeypatch.setattr(kernels, "serve", lambda *tensors: False)
    torch.testing.assert_close(layer.inverse(y), expected)
    torch.testing.assert_close(layer.inverter()(y), expected)


def test_free_parameters_exclude_masked_weights_and_the_compiled_kernel_is_used():
    layer = FInC((6, 4, 4), kernel_size=3)
    assert layer.sizes == [2, 2, 1, 1]
    assert [int(layer.get_buffer(f"weight{group}_mask").sum()) for group in range(4)] == [33, 33, 8, 8]
    layer = FInC((4, 5, 5))
    y = torch.randn(2, 4, 5, 5)
    with torch.profiler.profile() as profile:
        layer.inverse(y)
    used = any("emerging_inverse" in event.key for event in profile.key_averages())
    assert used == kernels.load()
