"""The second design of the butterfly against the layer, level by level."""

import ctypes
import importlib.util
import subprocess
from pathlib import Path

import pytest
import torch

from layers.butterfly import Butterfly
from layers.kernels.build import BuildFailed, find_compiler
from layers.kernels.cuda import find_nvcc

SCRIPT = Path(__file__).with_name("multiplied_out.py")

CASES = [
    ((3, 32, 32), {"levels": 10}, [(1, 96, 32), (32, 3, 32)]),
    ((3, 4, 4), {"levels": 10, "capped": True}, [(1, 3, 16)]),
    ((2, 8, 16), {"levels": 7, "flatten": "channels_last"}, [(1, 32, 8), (8, 2, 16)]),
    ((2, 512), {"levels": 10, "shared": True}, [(1, 32, 32), (32, 1, 32)]),
    ((3, 32), {"levels": 0}, []),
]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("multiplied_out", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    """Return the function of products/emulation.cpp, whose arguments are those of a launch, and the chunks."""
    library, here = tmp_path_factory.mktemp("products") / "emulation.so", Path(__file__).parents[1]
    places = [here.parent / "csrc", here / "layers" / "emulation", script.FOLDER]
    flags = [
        "-std=c++20",
        "-O1",
        "-fPIC",
        "-shared",
        "-Wall",
        "-Wextra",
        "-Werror",
        *(f"-I{place}" for place in places),
    ]
    source = script.FOLDER / "emulation.cpp"
    subprocess.run([*find_compiler(), *flags, str(source), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).emulate_products
    function.restype, function.argtypes = ctypes.c_char_p, [*script.ARGUMENTS, ctypes.c_int]
    return function


@pytest.mark.system
@pytest.mark.parametrize("tiles", [0, 1])
@pytest.mark.parametrize(
    ("outer", "inner", "rows"), [(1, 96, 32), (32, 3, 32), (2, 1, 8), (3, 5, 16), (1, 17, 16), (4, 9, 8)]
)
@pytest.mark.parametrize("batch", [1, 70])
def test_the_body_of_the_kernel_gives_the_products(script, emulated, outer, inner, rows, batch, tiles):
    blocks, x = torch.randn(outer, inner, rows, rows), torch.randn(batch, outer * rows * inner)
    [kept], y = script.transposed([blocks]), torch.full_like(x, torch.nan)
    assert emulated(*script.arguments(kept, x, y, tiles), 2) is None
    torch.testing.assert_close(y, script.apply_blocks(blocks.double(), x.double()).float(), rtol=1e-5, atol=2e-5)


@pytest.mark.system
def test_the_kernel_compiles_without_a_warning(script, tmp_path):
    try:
        find_nvcc()
    except BuildFailed as error:
        pytest.skip(f"{error}")
    script.Products(tmp_path, "sm_90")


def test_other_orders_of_levels_are_refused(script):
    second = script.MultipliedOut((1, 16), levels=[2, 1])
    with pytest.raises(ValueError, match=r"are not 1\.\.M"):
        second(torch.zeros(1, 1, 16))
