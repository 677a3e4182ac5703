"""The second design of the butterfly against the layer, level by level."""

import ctypes

import pytest
import torch
from emulations import CSRC, compile_host

from layers.butterfly import Butterfly

CASES = [
    ((3, 32, 32), {"levels": 10}, [(1, 96, 32), (32, 3, 32)]),
    ((3, 4, 4), {"levels": 10, "capped": True}, [(1, 3, 16)]),
    ((2, 8, 16), {"levels": 7, "flatten": "channels_last"}, [(1, 32, 8), (8, 2, 16)]),
    ((2, 512), {"levels": 10, "shared": True}, [(1, 32, 32), (32, 1, 32)]),
    ((3, 32), {"levels": 0}, []),
]
BLOCKS = [(1, 96, 32), (32, 3, 32), (2, 1, 8), (3, 5, 16), (1, 17, 16), (4, 9, 8)]


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("extensions/multiplied_out.py")


@pytest.mark.parametrize(("shape", "options", "sizes"), CASES)
def test_two_products_of_blocks_are_the_levels_with_their_gradients_and_their_inverse(script, shape, options, sizes):
    layer = Butterfly(shape, initialisation="rotation", **options).double()
    with torch.no_grad():
        layer.weight.add_(0.2 * torch.randn_like(layer.weight))
    second = script.MultipliedOut(shape, **options).double()
    second.load_state_dict(layer.state_dict())
    assert [tuple(blocks.shape[:3]) for blocks in script.blocks_of(second.weight, second.plan)] == sizes
    x = torch.randn(5, *shape, dtype=torch.float64, requires_grad=True)
    results = []
    for each in (layer, second):
        y, log_det = each(x)
        gradients = torch.autograd.grad(
            (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum() + log_det, [x, each.weight]
        )
        results.append((y, log_det, *gradients))
    for first, other in zip(*results, strict=True):
        torch.testing.assert_close(other, first, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(second.inverse(results[0][0]), x, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def emulated(script, tmp_path_factory):
    """Return the two functions of products/emulation.cpp; the first takes the number of chunks besides."""
    names = ("emulate_products", "emulate_gradients")
    source, places = script.FOLDER / "emulation.cpp", [CSRC, script.FOLDER]
    library = compile_host(source, tmp_path_factory.mktemp("products"), names, places)
    products, gradients = (getattr(library, name) for name in names)
    products.argtypes, gradients.argtypes = [*script.ARGUMENTS, ctypes.c_int], script.ARGUMENTS
    return products, gradients


@pytest.mark.system
@pytest.mark.parametrize(("outer", "inner", "rows"), BLOCKS)
@pytest.mark.parametrize("batch", [1, 70])
def test_the_bodies_of_the_kernels_give_the_products_and_the_gradients(script, emulated, outer, inner, rows, batch):
    products, gradients = emulated
    blocks, x = torch.randn(outer, inner, rows, rows), torch.randn(batch, outer * rows * inner)
    [kept], exact = script.transposed([blocks]), blocks.double().requires_grad_()
    expected, dy = script.apply_blocks(exact, x.double()), torch.randn_like(x)
    for tiles in range(len(script.TILES)):
        y = torch.full_like(x, torch.nan)
        assert products(*script.arguments(kept, x, y, tiles), 2) is None
        torch.testing.assert_close(y.double(), expected.detach(), rtol=1e-5, atol=2e-5)
    sums = torch.full((3, *blocks.shape), torch.nan)
    assert gradients(x.data_ptr(), dy.data_ptr(), sums.data_ptr(), *script.sizes(blocks, x), 3) is None
    [gradient] = torch.autograd.grad(expected, exact, dy.double())
    torch.testing.assert_close(sums.sum(0).double(), gradient, rtol=1e-5, atol=5e-5)


@pytest.mark.system
def test_a_pass_forward_and_backward_has_the_gradients_of_events_and_blocks(script, emulated):
    products, gradients = emulated

    def launch(function, given):
        assert function(*given) is None

    kernels = object.__new__(script.Products)
    kernels._launch, kernels._gradients = launch, gradients
    kernels._multiply = lambda *given: products(*given, 2)
    layer = script.MultipliedOut((2, 4, 16), levels=7, initialisation="rotation")
    exact = [of_stage.detach().double().requires_grad_() for of_stage in script.blocks_of(layer.weight, layer.plan)]
    blocks = script.transposed([of_stage.detach().float() for of_stage in exact])
    x = torch.randn(9, 2, 4, 16, dtype=torch.float64, requires_grad=True)
    y = layer.multiplied(exact, x)
    of_x, *of_blocks = torch.autograd.grad(y.sum(), [x, *exact])
    torch.testing.assert_close(
        kernels.forward(blocks, x.detach().float(), 0).double(), y.detach(), rtol=1e-5, atol=1e-5
    )
    found, of_stages = kernels.forward_backward(blocks, x.detach().float(), 1)
    torch.testing.assert_close(found.double(), of_x, rtol=1e-5, atol=1e-5)
    for gradient, expected in zip(of_stages, of_blocks, strict=True):
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-5, atol=5e-5)


@pytest.mark.system
def test_the_kernels_compile_without_a_warning(script, tmp_path):
    script.Products(tmp_path, "sm_90")
