"""Compare the butterfly layer with the eager yardstick: `python tests/benchmarks/butterfly_table.py`.

3x32x32, ten levels, float32. Layer, yardstick and a copy of the input take turns in one process; a figure is the median
over the rounds, a ratio the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import butterfly_yardstick as yardstick  # the script's own folder

from harness.core.flags import keep_freed_memory
from layers.butterfly import Butterfly
from layers.kernels import load as kernels

SHAPE, LEVELS = (3, 32, 32), 10
LEAST_SECONDS = 2e-3  # a sample repeats a call until it lasts this long
Call = Callable[[], object]


def cases(batch: int) -> dict[str, tuple[Call, Call]]:
    """Return operation -> (layer, yardstick), on the same weights and events."""
    torch.manual_seed(0)
    layer = Butterfly(SHAPE, levels=LEVELS, initialisation="rotation")
    weights = yardstick.level_weights(layer.weight, layer.dim, LEVELS)
    x = torch.randn(batch, *SHAPE, requires_grad=True)
    ones = torch.ones_like(x)

    def both(y: torch.Tensor, log_det: torch.Tensor, leaves: list[torch.Tensor]) -> object:
        return torch.autograd.grad([y, log_det], [x, *leaves], [ones, None])

    def layer_inverse() -> object:
        with torch.no_grad():
            return layer.inverse(x)

    def yardstick_inverse() -> object:
        with torch.no_grad():
            return yardstick.inverse(x, weights)

    y, log_det = layer(x)
    expected, expected_log_det = yardstick.forward(x, weights)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(log_det, expected_log_det, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(layer_inverse(), yardstick_inverse(), rtol=1e-4, atol=1e-4)
    return {
        "forward + log-det": (lambda: layer(x), lambda: yardstick.forward(x, weights)),
        "forward + backward": (
            lambda: both(*layer(x), [layer.weight]),
            lambda: both(*yardstick.forward(x, weights), weights),
        ),
        "inverse": (layer_inverse, yardstick_inverse),
        "copy": (lambda: x.detach().clone(), lambda: layer(x)),
    }


def seconds(call: Call, calls: int) -> float:
    """Return the seconds per call."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def compare(pair: tuple[Call, Call], rounds: int) -> tuple[float, float, float]:
    """Return the median seconds of both, and the median of second / first."""
    calls = []
    for call in pair:
        for _ in range(3):
            call()
        calls.append(max(1, round(LEAST_SECONDS / seconds(call, 3))))
    times = [[seconds(call, number) for call, number in zip(pair, calls, strict=True)] for _ in range(rounds)]
    first, second = zip(*times, strict=True)
    return statistics.median(first), statistics.median(second), statistics.median(b / a for a, b in times)


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64, 256])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    keep_freed_memory()  # otherwise the times include the return and allocation of pages
    print(f"{kernels.backend()}, {args.threads} threads, {args.rounds} rounds, torch {torch.__version__}")
    for batch in args.batches:
        for name, pair in cases(batch).items():
            first, second, ratio = compare(pair, args.rounds)
            if name == "copy":
                print(
                    f"batch {batch:4}  layer forward / copy  {1e3 * second:8.3f} / {1e3 * first:.3f} ms = {ratio:5.1f}"
                )
            else:
                print(f"batch {batch:4}  {name:20}  {1e3 * second:8.3f} / {1e3 * first:.3f} ms = {ratio:5.1f} times")


if __name__ == "__main__":
    main()
