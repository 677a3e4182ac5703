"""The compiled layers on a CUDA device, beyond the emulation."""

import warnings

import pytest
import torch
from compared import at_most_twice, both_directions, with_gradients

from layers.emerging import Emerging
from layers.kernels import load as kernels

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

LAYERS = {
    "an odd factor": ((3, 8, 8), {"levels": 6}),
    "ten levels": ((3, 32, 32), {"levels": 10}),
    "last level first": ((3, 32, 32), {"levels": 10, "order": "descending"}),
    "channels last": ((3, 32, 32), {"levels": 10, "flatten": "channels_last"}),
    "both directions": ((4, 16), {"levels": 6, "bi_direction": True}),
    "shared": ((4, 512), {"levels": 10, "shared": True, "flatten": "channels_last"}),
    "partition": ((1, 28, 28), {"levels": [9, 8, 4], "partition": [512, 256, 16]}),
    "two launches": ((2, 128, 64), {"levels": 14}),
    "wide": ((48, 32, 32), {"levels": 10}),
    "no levels": ((2, 5), {"levels": 0}),
}


@pytest.fixture(autouse=True, scope="module")
def with_kernels():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert kernels.load("cuda"), [str(warning.message) for warning in caught]


@pytest.mark.parametrize("batch", [0, 1, 7, 300, 2049])
@pytest.mark.parametrize("case", LAYERS)
def test_values_and_gradients_equal_those_of_plain_pytorch(case, batch, rotated, without_kernels):
    layer = rotated(*LAYERS[case]).cuda()
    if batch * layer.dim > 2**24:
        batch = 2**24 // layer.dim
    x = torch.randn(batch, *layer.shape, dtype=torch.float64, device="cuda")
    values = both_directions(layer, x), without_kernels(both_directions, layer, x)
    torch.testing.assert_close(*values, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(layer.inverse(layer(x)[0]), x, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", LAYERS)
def test_error_is_at_most_twice_that_of_plain_pytorch(case, rotated, without_kernels):
    layer, exact = (rotated(*LAYERS[case], dtype).cuda() for dtype in (torch.float32, torch.float64))
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(64, *layer.shape, device="cuda")
    truth = without_kernels(exact, x.double())[:1]
    at_most_twice(layer(x)[:1], without_kernels(layer, x)[:1], truth, 1e-12)


def test_gradients_are_the_same_every_time_and_strides_do_not_matter(rotated):
    for case in ("ten levels", "shared"):
        layer = rotated(*LAYERS[case], torch.float32).cuda()
        x = torch.randn(700, *layer.shape, device="cuda")
        runs = [torch.autograd.grad(layer(x)[0].square().sum(), layer.weight)[0] for _ in range(3)]
        assert all(torch.equal(runs[0], run) for run in runs[1:])
    for dtype in (torch.float32, torch.bfloat16):
        layer = rotated(*LAYERS["ten levels"], torch.float32).cuda()
        odd = torch.randn(1 + 9 * layer.dim, device="cuda").to(dtype)[1:].view(9, *layer.shape)
        for x in (odd, odd.transpose(2, 3), odd[::2], odd[:1].expand(4, -1, -1, -1)):
            assert torch.equal(layer(x)[0], layer(x.clone(memory_format=torch.contiguous_format))[0])


def test_bfloat16_events(rotated, without_kernels):
    layer = rotated(*LAYERS["ten levels"], torch.float32).cuda()
    x = torch.randn(64, *layer.shape, device="cuda").to(torch.bfloat16)
    y, log_det = layer(x)
    assert y.dtype == torch.bfloat16 and log_det.dtype == torch.float32
    torch.testing.assert_close(y.float(), without_kernels(layer, x.float())[0], rtol=2**-8, atol=1e-5)


def test_on_another_stream(rotated):
    layer = rotated(*LAYERS["partition"], torch.float32).cuda()
    x = torch.randn(4096, *layer.shape, device="cuda")
    expected = layer(x)[0]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = layer(x.clone())[0]
        copy = y.clone()  # on the same stream: reads what the kernels before it wrote
    stream.synchronize()
    assert torch.equal(copy, expected)


def test_compiled_by_torch_and_second_derivatives_are_refused(rotated):
    layer = rotated(*LAYERS["ten levels"]).cuda()
    x = torch.randn(2, *layer.shape, dtype=torch.float64, device="cuda", requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        gradient.sum().backward()
    layer = rotated(*LAYERS["ten levels"], torch.float32).cuda()
    x = torch.randn(5, *layer.shape, device="cuda")
    y, log_det = torch.compile(layer, fullgraph=True)(x)
    torch.testing.assert_close((y, log_det), layer(x))


@pytest.mark.parametrize("case", ["ten levels", "shared", "two launches"])
def test_a_graph_captures_forward_backward_and_inverse(case, rotated):
    """A synchronisation would end the capture with an error."""
    layer = rotated(*LAYERS[case], torch.float32).cuda()
    x = torch.randn(33, *layer.shape, device="cuda", requires_grad=True)

    def step():
        y, log_det = layer(x)
        with torch.no_grad():
            back = layer.inverse(y)
        return y, back, *torch.autograd.grad(y.square().sum() + log_det, (x, layer.weight))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
    graph.replay()
    for replayed, eager in zip(captured, step(), strict=True):
        assert torch.equal(replayed, eager)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("shape", "kernel_size"),
    [((3, 32, 32), 3), ((12, 16, 16), 3), ((48, 8, 8), 3), ((4, 512), 51), ((96, 32, 32), 3), ((5, 7, 3), 9)],
)
def test_emerging_inverse(shape, kernel_size, dtype, without_kernels):
    torch.manual_seed(0)
    layer = Emerging(shape, kernel_size=kernel_size).to("cuda", dtype)
    tolerance = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-11}
    for batch in (1, 5, 300):
        y = torch.randn(batch, *shape, dtype=dtype, device="cuda", requires_grad=True)
        x, expected = layer.inverse(y), without_kernels(layer.inverse, y)
        torch.testing.assert_close(x, expected, **tolerance)
    leaves = [y, *layer.parameters()]
    gradients = [with_gradients(each, leaves) for each in (x, expected)]
    if dtype == torch.float64:
        torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-8)
