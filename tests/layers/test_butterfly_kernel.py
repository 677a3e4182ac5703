"""The compiled butterfly equals the one in plain PyTorch, also on unusual inputs."""

import copy
import math

import pytest
import torch
from compared import at_most_twice, both_directions

from layers.butterfly import Butterfly

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("compiled")]

LAYERS = {
    "an odd factor": ((3, 8, 8), {"levels": 6}),
    "five factors": ((5, 6, 10), {"levels": 2}),
    "ten levels": ((3, 32, 32), {"levels": 10}),
    "both directions": ((4, 16), {"levels": 6, "bi_direction": True}),
    "shared": ((4, 64), {"levels": 8, "shared": True, "flatten": "channels_last"}),
    "partition": ((1, 28, 28), {"levels": [9, 8, 4], "partition": [512, 256, 16]}),
    "two entries": ((1, 2), {"levels": 1}),
    "a large odd factor": ((7, 16, 16), {"levels": 8}),
    "twelve levels": ((3, 64, 64), {"levels": 12}),
    "levels in no order": ((3, 32, 32), {"levels": [3, 1, 2, 7, 7, 10, 5]}),
    "channels last": ((3, 32, 32), {"levels": 10, "flatten": "channels_last"}),
    "pairs of channels": ((4, 16, 16), {"levels": 10, "flatten": "channels_last", "order": "descending"}),
    "an odd number of positions": ((8, 6, 7), {"levels": 4, "flatten": "channels_last"}),
}


def compare(layer, x, without_kernels):
    """Compare both directions and their gradients with plain PyTorch, in float64."""
    values = both_directions(layer, x), without_kernels(both_directions, layer, x)
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-10)


def compare_errors(layer, exact, x, without_kernels, slack):
    """Compare the errors of both directions and their gradients in float32 with those of plain PyTorch."""
    truth = without_kernels(both_directions, exact, x.double())
    at_most_twice(both_directions(layer, x), without_kernels(both_directions, layer, x), truth, slack)


@pytest.mark.parametrize("case", LAYERS)
@pytest.mark.parametrize("batch", [0, 1, 3, 5, 33, 70])
def test_values_and_gradients_equal_those_of_plain_pytorch(case, batch, rotated, without_kernels):
    layer = rotated(*LAYERS[case])
    x = torch.randn(batch, *layer.shape, dtype=torch.float64)
    compare(layer, x, without_kernels)
    torch.testing.assert_close(layer.inverse(layer(x)[0]), x, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", LAYERS)
@pytest.mark.parametrize("batch", [2, 4, 200])
def test_errors_are_at_most_twice_those_of_plain_pytorch(case, batch, rotated, without_kernels):
    layer, exact = (rotated(*LAYERS[case], dtype) for dtype in (torch.float32, torch.float64))
    exact.load_state_dict(layer.state_dict())
    compare_errors(layer, exact, torch.randn(batch, *layer.shape), without_kernels, 0.0)


@pytest.mark.parametrize("odd", [1, 3, 5, 7, 9])
def test_every_size_from_two_entries_to_many_vectors(odd, without_kernels):
    """Lanes are entries in large events with a small odd factor, else examples; the limits depend on the processor."""
    for exponent in range(1, 11):
        torch.manual_seed(exponent)
        layer = Butterfly((odd, 1 << exponent), levels=exponent, initialisation="rotation")
        exact = copy.deepcopy(layer).double()
        x = torch.randn(9, *layer.shape)
        compare(exact, x.double(), without_kernels)
        compare_errors(layer, exact, x, without_kernels, 1e-6)
        torch.testing.assert_close(exact.inverse(exact(x.double())[0]), x.double(), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(layer.inverse(layer(x)[0]), x, rtol=1e-4, atol=1e-4)


def test_gradients_of_a_batch_that_is_summed_in_several_shares(rotated, without_kernels):
    layer = rotated(*LAYERS["an odd factor"])
    compare(layer, torch.randn(2600, *layer.shape, dtype=torch.float64), without_kernels)


@pytest.mark.parametrize("case", ["ten levels", "twelve levels", "shared", "an odd number of positions"])
def test_values_and_gradients_do_not_depend_on_threads(case, same_by_threads, rotated):
    layer = rotated(*LAYERS[case])
    x = torch.randn(300, *layer.shape, dtype=torch.float64)
    same_by_threads(lambda: both_directions(layer, x), (1, 2, 5), 1e-9)


def test_strides_do_not_matter_and_gradients_are_the_same_every_time(rotated):
    layer = rotated(*LAYERS["ten levels"], torch.float32)
    x = torch.randn(6, 3, 32, 32)
    for odd in (
        x.to(memory_format=torch.channels_last),
        torch.stack([x, x], dim=-1)[..., 0],
        x.flip(0).flip(0).transpose(2, 3).contiguous().transpose(2, 3),
        torch.cat([x, x])[::2],
    ):
        y, _ = layer(odd)
        assert torch.equal(y, layer(odd.contiguous())[0])
        assert torch.equal(layer.inverse(odd), layer.inverse(odd.contiguous()))
    layer = rotated(*LAYERS["ten levels"], torch.float32)
    x = torch.randn(70, 3, 32, 32)
    runs = [torch.autograd.grad(layer(x)[0].square().sum(), layer.weight)[0] for _ in range(3)]
    assert all(torch.equal(runs[0], run) for run in runs[1:])


@pytest.mark.parametrize("case", ["an odd factor", "levels in no order", "pairs of channels"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_nan_stays_in_its_example_and_reaches_dependent_entries(case, dtype, rotated, without_kernels):
    layer = rotated(*LAYERS[case], dtype)
    x = torch.randn(20, *layer.shape, dtype=dtype)
    clean = layer(x)[0]
    x[7, 1, 2, 3] = math.nan
    broken, expected = layer(x)[0], without_kernels(layer, x)[0]
    assert torch.equal(broken.isnan(), expected.isnan()) and broken[7].isnan().any()
    others = [event for event in range(20) if event != 7]
    torch.testing.assert_close(broken[others], clean[others])


def test_a_singular_pair_has_no_inverse_and_double_backward_is_refused(rotated):
    layer = rotated(*LAYERS["two entries"])
    with torch.no_grad():
        layer.weight.fill_(1.0)
    assert layer(torch.ones(2, 1, 2, dtype=torch.float64))[1] == -math.inf
    assert not layer.inverse(torch.rand(2, 1, 2, dtype=torch.float64)).isfinite().any()
    layer = rotated(*LAYERS["two entries"])
    x = torch.randn(3, 1, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"(?i)butterfly|differentia|backward"):
        torch.autograd.grad(gradient.square().sum(), layer.weight)
    layer = rotated(*LAYERS["shared"])
    x = torch.randn(3, *layer.shape, dtype=torch.float64, requires_grad=True)
    arguments = (x, layer.weight, layer.plan.flat, layer.layout, layer.plan.shared)
    torch.library.opcheck(torch.ops.invertbench.butterfly.default, arguments)
