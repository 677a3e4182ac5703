"""The bodies of the CUDA butterfly's kernels, run thread by thread on the processor (tests/layers/emulation).

The emulation itself fails where an entry is not stored exactly once, where threads meet in shared memory without a
barrier between them, and where anything is read that nothing wrote; the results are compared with plain PyTorch.
"""

import ctypes

import pytest
import torch
from compared import at_most_twice, with_gradients
from torch import Tensor

from layers.butterfly import Butterfly

pytestmark = pytest.mark.system

H200 = 227 << 10
LAYERS = {
    "two entries": ((1, 2), {"levels": 1}),
    "no levels": ((2, 5), {"levels": 0}),
    "an odd factor": ((3, 8, 8), {"levels": 6}),
    "five factors": ((5, 6, 10), {"levels": 2}),
    "nine channels": ((9, 16), {"levels": 4}),
    "ten levels": ((3, 32, 32), {"levels": 10}),
    "last level first": ((3, 32, 32), {"levels": 10, "order": "descending"}),
    "both directions": ((4, 16), {"levels": 6, "bi_direction": True}),
    "a level many times": ((3, 4), {"levels": [1, 2, 2, 1, 1, 2, 1] * 5}),
    "levels in disorder": ((1, 64), {"levels": [5, 1, 6, 2, 2, 4]}),
    "shared": ((4, 64), {"levels": 8, "shared": True}),
    "shared by channels": ((4, 512), {"levels": 10, "shared": True, "flatten": "channels_last"}),
    "shared, odd": ((3, 7, 8), {"levels": 3, "shared": True, "order": "descending"}),
    "channels last": ((3, 32, 32), {"levels": 10, "flatten": "channels_last"}),
    "pixels": ((12, 8, 8), {"levels": 6, "flatten": "channels_last"}),
    "partition": ((1, 28, 28), {"levels": [9, 8, 4], "partition": [512, 256, 16]}),
    "partition by channels": ((7, 4, 4), {"levels": [6, 5, 4], "partition": [64, 32, 16], "flatten": "channels_last"}),
    "two launches": ((2, 128, 64), {"levels": 14}),
    "many columns": ((3, 100, 8), {"levels": 3}),
    "wide": ((12, 32, 32), {"levels": 10}),
}
SMALL = [name for name in LAYERS if name not in ("two launches", "wide")]


@pytest.fixture(scope="module")
def emulation(tmp_path_factory, compile_emulation):
    return compile_emulation("butterfly", tmp_path_factory.mktemp("emulation"))


class EmulatedJob(ctypes.Structure):
    """As in emulation/butterfly.cpp."""

    _fields_ = (
        ("plan", ctypes.POINTER(ctypes.c_int64)),
        ("layout", ctypes.POINTER(ctypes.c_int64)),
        ("plan_length", ctypes.c_int64),
        ("layout_length", ctypes.c_int64),
        ("shared", ctypes.c_int),
        ("inverse", ctypes.c_int),
        ("half", ctypes.c_int),
        ("batch", ctypes.c_int64),
        ("shared_bytes", ctypes.c_int),
        ("chunks", ctypes.c_int),
    )


class Emulated:
    """The emulated operators of a layer; they raise the faults that the emulation detects."""

    def __init__(self, library: ctypes.CDLL, layer: Butterfly, shared_bytes: int = H200, chunks: int = 3) -> None:
        self.library, self.layer = library, layer
        self.shared_bytes, self.chunks = shared_bytes, chunks
        self.launches = self.kept = self.log_dets = 0

    def job(self, x: Tensor, inverse: bool) -> EmulatedJob:
        plan, layout = self.layer.plan.flat, self.layer.layout
        numbers = [(ctypes.c_int64 * max(1, len(some)))(*some) for some in (plan, layout)]
        return EmulatedJob(
            *(ctypes.cast(some, ctypes.POINTER(ctypes.c_int64)) for some in numbers),
            len(plan),
            len(layout),
            self.layer.plan.shared,
            inverse,
            x.dtype == torch.bfloat16,
            len(x),
            self.shared_bytes,
            self.chunks,
        )

    def apply(self, x: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor]:
        weight = self.layer.weight.detach().contiguous()
        y, log_det = torch.full_like(x, torch.nan), torch.full((), torch.nan, dtype=weight.dtype)
        launches = (ctypes.c_int * 3)()
        self.check(
            self.library.emulate_apply(
                weight.dtype == torch.float64,
                ctypes.byref(self.job(x, inverse)),
                *map(address, (x.contiguous(), weight, y)),
                None if inverse else address(log_det),
                launches,
            )
        )
        self.launches, self.kept, self.log_dets = launches
        return y, log_det

    def backward(
        self, x: Tensor, dy: Tensor | None, grad_log_det: float | None, inverse: bool = False
    ) -> tuple[Tensor, Tensor]:
        weight = self.layer.weight.detach().contiguous()
        dx = torch.zeros_like(x) if dy is None else torch.full_like(x, torch.nan)
        gradient = torch.full_like(weight, torch.nan)
        of_log_det = None if grad_log_det is None else torch.tensor(grad_log_det, dtype=weight.dtype)
        self.check(
            self.library.emulate_backward(
                weight.dtype == torch.float64,
                ctypes.byref(self.job(x, inverse)),
                *map(address, (x, weight, dy, of_log_det, dx, gradient)),
            )
        )
        return dx, gradient

    @staticmethod
    def check(message: bytes | None) -> None:
        if message is not None:
            raise AssertionError(message.decode())


def address(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


@pytest.fixture
def compare(emulation, without_kernels, rotated):
    """Return a function that compares both directions and their gradients with plain PyTorch."""

    def run(case: str, batch: int, shared_bytes: int, dtype: torch.dtype, library=emulation, chunks: int = 3):
        layer = rotated(*LAYERS[case], dtype)
        emulated = Emulated(library, layer, shared_bytes, chunks)
        loose = {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-3}
        x = torch.randn(batch, *layer.shape, dtype=dtype, requires_grad=True)
        start, cotangent, leaves = x.detach(), torch.randn_like(x), [x, layer.weight]
        outcome = [*emulated.apply(start), *emulated.backward(start, cotangent, 3.0)]
        seeds = [cotangent, torch.tensor(3.0, dtype=dtype)]
        torch.testing.assert_close(outcome, with_gradients(without_kernels(layer, x), leaves, seeds), **loose)
        outcome = [emulated.apply(start, inverse=True)[0], *emulated.backward(start, cotangent, None, inverse=True)]
        expected = with_gradients(without_kernels(layer.inverse, x), leaves, [cotangent])
        torch.testing.assert_close(outcome, expected, **loose)

    return run


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("case", LAYERS)
def test_both_directions_and_their_gradients(compare, case, batch):
    if case not in SMALL and batch > 1:
        batch = 3
    compare(case, batch, H200, torch.float64)


@pytest.mark.parametrize("case", ["ten levels", "last level first", "channels last", "partition", "shared by channels"])
def test_float32(compare, case):
    compare(case, 9, H200, torch.float32)


@pytest.mark.parametrize("shared_bytes", [99 << 10, 20 << 10, 6 << 10])
@pytest.mark.parametrize("case", ["ten levels", "shared by channels", "partition", "many columns", "both directions"])
def test_with_less_shared_memory(compare, case, shared_bytes):
    compare(case, 5, shared_bytes, torch.float32)


def test_ten_levels_take_one_launch_with_their_log_det_and_more_take_two(emulation, rotated):
    for case, dtype, launches, kept, log_dets in (
        ("ten levels", torch.float32, 1, 1, 0),
        ("last level first", torch.float32, 1, 1, 0),
        ("shared by channels", torch.float32, 1, 0, 0),
        ("partition", torch.float32, 3, 0, 0),
        ("two launches", torch.float32, 2, 0, 1),
        ("a level many times", torch.float32, 2, 0, 0),
        ("no levels", torch.float32, 1, 0, 0),
    ):
        emulated = Emulated(emulation, rotated(*LAYERS[case], dtype))
        emulated.apply(torch.randn(1, *emulated.layer.shape, dtype=dtype))
        counts = (emulated.launches, emulated.kept, emulated.log_dets)
        assert counts == (launches, kept, log_dets), case


def test_no_gradient_of_the_output_and_an_empty_batch(emulation, rotated, without_kernels):
    for case in ("shared", "partition"):
        layer = rotated(*LAYERS[case])
        x = torch.randn(4, *layer.shape, dtype=torch.float64)
        dx, gradient = Emulated(emulation, layer).backward(x, None, 2.0)
        (expected,) = torch.autograd.grad(2 * without_kernels(layer, x)[1], layer.weight)
        torch.testing.assert_close(gradient, expected)
        assert not dx.any()
    layer = rotated(*LAYERS["partition"])
    x = torch.randn(0, *layer.shape, dtype=torch.float64)
    emulated = Emulated(emulation, layer)
    assert emulated.apply(x)[1].isfinite()
    assert not emulated.backward(x, x, None)[1].any()


@pytest.mark.parametrize("case", ["ten levels", "shared", "two launches"])
def test_log_det_of_large_small_and_singular_matrices(emulation, case, rotated, without_kernels):
    """The product of the determinants overflows long before the sum of their logarithms does."""
    layer = rotated(*LAYERS[case], torch.float32)
    x = torch.zeros(1, *layer.shape)
    with torch.no_grad():
        for scale in (1e18, 1e-18):
            layer.weight.copy_(scale * rotated(*LAYERS[case], torch.float32).weight)
            expected = without_kernels(layer.double(), x.double())[1]
            log_det = Emulated(emulation, layer.float()).apply(x)[1]
            torch.testing.assert_close(log_det, expected.float(), rtol=1e-5, atol=0)
        layer.weight[:, :, 3] = 0
        assert Emulated(emulation, layer).apply(x)[1] == -torch.inf


@pytest.mark.parametrize("case", ["ten levels", "shared by channels", "two launches"])
def test_bfloat16_events_with_float32_arithmetic(emulation, case, rotated, without_kernels):
    """The error is that of rounding the results once, also where there are several launches."""
    layer = rotated(*LAYERS[case], torch.float32)
    emulated = Emulated(emulation, layer)
    x = torch.randn(3, *layer.shape).to(torch.bfloat16)
    cotangent = torch.randn(3, *layer.shape).to(torch.bfloat16)
    wide = x.float().requires_grad_()
    y, _ = without_kernels(layer, wide)
    dx, gradient = torch.autograd.grad((y * cotangent.float()).sum(), (wide, layer.weight))
    result, log_det = emulated.apply(x)
    rounding = {"rtol": 2**-8, "atol": 1e-5}
    assert result.dtype == torch.bfloat16 and log_det.dtype == torch.float32
    torch.testing.assert_close(result.float(), y.detach(), **rounding)
    of_x, of_weight = emulated.backward(x, cotangent, None)
    torch.testing.assert_close(of_x.float(), dx, **rounding)
    torch.testing.assert_close(of_weight, gradient, rtol=1e-4, atol=1e-4)


def test_error_is_at_most_twice_that_of_plain_pytorch(emulation, rotated, without_kernels):
    layer, exact = rotated(*LAYERS["ten levels"], torch.float32), rotated(*LAYERS["ten levels"])
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(16, *layer.shape)
    truth, true_log_det = without_kernels(exact, x.double())
    y, log_det = Emulated(emulation, layer).apply(x)
    at_most_twice([y], without_kernels(layer, x)[:1], [truth])
    assert abs(log_det.double() - true_log_det) <= 2**-23 * abs(true_log_det)


# A fault in the sources: the file, a text of it, the text instead, and the message that shows it.
FAULTS = {
    "no barrier": (
        "butterfly/cuda/tile.h",
        "fetch(group + chunks, 1 - buffer, thread)",
        "fetch(group + chunks, buffer, thread)",
        "under way|another|before it arrived",
    ),
    "a tile's edge": (
        "butterfly/cuda/gather.h",
        "origin.column + column >= stage.columns",
        "false",
        "not stored once|stored twice|not the launch's",
    ),
    "a logarithm twice": (
        "butterfly/cuda/matrices.h",
        "number) * block.threads() + thread;",
        "number) + thread;",
        "not close",
    ),
    "transposed": ("butterfly/cuda/backward.h", "sum.b += du * v;", "sum.b += dv * u;", "not close"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_kernels_is_detected(tmp_path, compare, fault, compile_emulation):
    *change, seen = FAULTS[fault]
    broken = compile_emulation("butterfly", tmp_path, change)
    with pytest.raises(AssertionError, match=seen):
        for case, shared_bytes in (("ten levels", H200), ("many columns", 6 << 10), ("shared by channels", H200)):
            compare(case, 9, shared_bytes, torch.float32, broken, chunks=1)
