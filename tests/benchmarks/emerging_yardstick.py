"""Compare the Emerging inverse with a scalar loop: `python tests/benchmarks/emerging_yardstick.py [--threads 2]`.

The yardstick, emerging_yardstick.cpp, solves one pixel after the other on one thread in float64, compiled with
`-O2 -fno-tree-vectorize`. Layer, yardstick, the layer's own forward and the plain PyTorch inverse take turns of some
milliseconds in one process that keeps freed memory, as trials do; what is printed are medians over the rounds of each
turn's median, in float32 but for the yardstick, and of their ratios.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from harness.core.flags import keep_freed_memory
from layers.emerging import Emerging
from layers.kernels import load as kernels
from layers.kernels.build import find_compiler

SOURCE = Path(__file__).with_suffix(".cpp")
TURN = 20.0
CASES = [((3, 32, 32), 3), ((12, 16, 16), 3), ((48, 8, 8), 3), ((4, 512), 51)]


def without_kernels(layer: Emerging, y: Tensor) -> Tensor:
    """Return the inverse by plain PyTorch."""
    with patch.object(kernels, "serve", lambda *tensors: False):
        return layer.inverse(y)


def build_yardstick(folder: Path) -> Callable[[Emerging, Tensor], Tensor]:
    """Compile the scalar loop, and return the inverse of a float64 layer."""
    library = folder / "yardstick.so"
    flags = ["-O2", "-fno-tree-vectorize", "-shared", "-fPIC"]
    subprocess.run([*find_compiler(), *flags, str(SOURCE), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).emerging_yardstick
    function.restype = None

    def invert(layer: Emerging, y: Tensor) -> Tensor:
        if y.dtype != torch.float64 or layer.bias is None:
            raise ValueError("the yardstick works in float64 and wants a bias")
        x = y.clone(memory_format=torch.contiguous_format)
        height, width = (1, *layer.shape[1:])[-2:]
        rows = layer.kernel_size if len(layer.shape) == 3 else 1
        tensors = [ctypes.c_void_p(t.data_ptr()) for t in (x, layer.weight1, layer.weight2, layer.bias)]
        sizes = (len(y), layer.channels, height, width, rows, layer.kernel_size)
        function(*tensors, *map(ctypes.c_int64, sizes))
        return x

    return invert


def compare(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each call in each round, the median over a turn of TURN milliseconds or one call."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            turn: list[float] = []
            while sum(turn) < TURN:
                start = time.perf_counter()
                call()
                turn.append(1e3 * (time.perf_counter() - start))
            spent[name].append(statistics.median(turn))
    return {name: times[1:] for name, times in spent.items()}


def ratio(of: list[float], to: list[float]) -> float:
    """Return the median over the rounds."""
    return statistics.median(a / b for a, b in zip(of, to, strict=True))


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    print(f"batch {args.batch}, {args.threads} threads, torch {torch.__version__}, {kernels.backend()}")
    print("times in ms; x is how many times faster the layer's inverse is than the scalar loop")
    with tempfile.TemporaryDirectory() as folder:
        yardstick = build_yardstick(Path(folder))
        for shape, kernel_size in CASES:
            torch.manual_seed(0)
            layer = Emerging(shape, kernel_size=kernel_size)
            exact = Emerging(shape, kernel_size=kernel_size).double()
            exact.load_state_dict(layer.state_dict())
            x = torch.randn(args.batch, *shape)
            y = layer(x)[0].detach()
            wide = y.double()
            torch.testing.assert_close(layer.inverse(y).double(), yardstick(exact, wide), rtol=1e-3, atol=1e-4)
            calls = {
                "inverse": torch.no_grad()(lambda layer=layer, y=y: layer.inverse(y)),
                "forward": torch.no_grad()(lambda layer=layer, x=x: layer(x)),
                "plain": torch.no_grad()(lambda layer=layer, y=y: without_kernels(layer, y)),
                "yardstick": lambda exact=exact, wide=wide: yardstick(exact, wide),
            }
            spent = compare(calls, args.rounds)
            medians = "  ".join(f"{name} {statistics.median(times):8.3f}" for name, times in spent.items())
            print(
                f"{'x'.join(map(str, shape)):>9} k={kernel_size:<2}  {medians}"
                f"  x {ratio(spent['yardstick'], spent['inverse']):5.1f}"
                f"  forward / inverse {ratio(spent['forward'], spent['inverse']):.2f}"
            )


if __name__ == "__main__":
    main()
