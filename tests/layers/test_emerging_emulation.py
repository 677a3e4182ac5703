"""The kernels of Emerging's CUDA inverse, emulated thread by thread on the processor."""

import ctypes

import pytest
import torch
from torch import Tensor

from layers.emerging import Emerging

pytestmark = pytest.mark.system

H200 = 227 << 10
SHAPES = [(1, 1, 1), (3, 5, 4), (2, 1, 9), (2, 9, 1), (7, 3, 21), (13, 19, 5), (1, 6), (3, 1), (4, 70)]
KERNELS = [1, 3, 9]


@pytest.fixture(scope="module")
def emulation(tmp_path_factory, compile_emulation):
    return compile_emulation("emerging", tmp_path_factory.mktemp("emulation"))


class Sizes(ctypes.Structure):
    """The struct of emulation/emerging.cpp."""

    _fields_ = (
        ("events", ctypes.c_int64),
        *(
            (name, ctypes.c_int)
            for name in ["channels", "height", "width", "kernel_rows", "kernel_columns", "shared_bytes", "blocks"]
        ),
    )


def invert(library: ctypes.CDLL, layer: Emerging, y: Tensor, shared_bytes: int = H200, blocks: int = 2):
    """Return x and whether images and taps were in shared memory; raise the faults that the emulation detects."""
    sides = (1, *layer.shape[1:])[-2:]
    kernel = (1, layer.kernel_size) if len(layer.shape) == 2 else (layer.kernel_size, layer.kernel_size)
    sizes = Sizes(len(y), layer.channels, *sides, *kernel, shared_bytes, blocks)
    operands = [
        None if tensor is None else tensor.detach().contiguous()
        for tensor in (layer.weight1, layer.weight2, layer.bias)
    ]
    x = torch.full_like(y, torch.nan)
    chosen = (ctypes.c_int * 3)()
    pointers = [ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in (y, *operands, x)]
    message = library.emulate_emerging(y.dtype == torch.float64, ctypes.byref(sizes), *pointers, chosen)
    if message is not None:
        raise AssertionError(message.decode())
    return x, list(chosen)


@pytest.mark.parametrize("kernel_size", KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_against_plain_torch(emulation, shape, kernel_size, gentle, without_kernels):
    layer = gentle(shape, kernel_size)
    for weight, mask in ((layer.weight1, layer.weight1_mask), (layer.weight2, layer.weight2_mask)):
        weight[~mask] = torch.nan  # masked entries are not read
    for batch in (1, 3):
        y = torch.randn(batch, *shape, dtype=torch.float64)
        x, _ = invert(emulation, layer, y)
        torch.testing.assert_close(x, without_kernels(layer.inverse, y), rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(layer(x)[0], y, rtol=1e-11, atol=1e-12)


@torch.no_grad()
def test_with_less_shared_memory(emulation, gentle, without_kernels):
    layer = gentle((5, 9, 8), 3, bias=False)
    y = torch.randn(3, 5, 9, 8, dtype=torch.float64)
    ways = set()
    for shared_bytes in (H200, 6200, 1200, 0):
        x, (parts, images, taps) = invert(emulation, layer, y, shared_bytes)
        ways.add((images, taps))
        torch.testing.assert_close(x, without_kernels(layer.inverse, y), rtol=1e-11, atol=1e-12)
    assert ways == {(1, 1), (1, 0), (0, 1), (0, 0)}, parts


@pytest.mark.parametrize(
    ("shape", "kernel_size"), [((3, 32, 32), 3), ((12, 16, 16), 3), ((48, 8, 8), 3), ((4, 128), 51)]
)
@torch.no_grad()
def test_error_is_no_more_than_twice_that_of_plain_torch(emulation, shape, kernel_size, gentle, without_kernels):
    layer = gentle(shape, kernel_size, torch.float32)
    y = torch.randn(2, *shape)
    emulated, usual = invert(emulation, layer, y)[0], without_kernels(layer.inverse, y)
    exact = without_kernels(layer.double().inverse, y.double())
    assert 0 < (emulated - exact).norm() <= 2 * (usual - exact).norm()


FAULTS = {
    "a tap that looks ahead": (
        "(row - i) * call.width + column - j",
        "(row - i) * call.width + column",
        "another|not close",
    ),
    "a shared scratch": ("scratch[e] = sum;", "scratch[entry] = sum;", "two threads"),
}


@pytest.mark.parametrize("fault", FAULTS)
@torch.no_grad()
def test_a_fault_in_the_kernels_is_detected(tmp_path, fault, gentle, without_kernels, compile_emulation):
    *change, seen = FAULTS[fault]
    broken = compile_emulation("emerging", tmp_path, ("emerging/cuda/kernels.h", *change))
    with pytest.raises(AssertionError, match=seen):
        for shape, kernel_size in (((3, 5, 4), 3), ((4, 70), 51)):
            layer = gentle(shape, kernel_size)
            y = torch.randn(3, *shape, dtype=torch.float64)
            torch.testing.assert_close(invert(broken, layer, y)[0], without_kernels(layer.inverse, y))
