"""Time of the recurrence beside an Emerging convolution of 25 taps: `python tests/benchmarks/recurrence.py`.

Alternating calls on one thread, medians in milliseconds; shapes as a flow's levels meet them. On an AMD EPYC (shared, 8
states): 0.9 to 3.4 times forward and backward; 0.9 to 5.1 times without gradients, above 4 at 4x256 alone, where calls
of 0.5 ms are mostly the preparation of the weights.
"""

import statistics
import time
from collections.abc import Callable

import torch

from layers.emerging import Emerging
from layers.recurrence import Recurrence

SIZES = [((8, 5000), 8), ((16, 2500), 8), ((4, 256), 32), ((16, 250), 32), ((8, 128), 32)]
ROUNDS = 21


def call_of(layer: torch.nn.Module, x: torch.Tensor, operation: str) -> Callable[[], object]:
    """Return a call of `forward` or `inverse` without gradients, or of a training step's two passes."""
    if operation == "forward + backward":
        x = x.clone().requires_grad_()

        def both() -> None:
            y, log_det = layer(x)
            (y.sum() + log_det).backward()

        return both
    return torch.no_grad()(lambda: getattr(layer, operation)(x))


def main() -> None:
    torch.set_num_threads(1)
    for shape, batch in SIZES:
        x = torch.randn(batch, *shape)
        layers = [Emerging(shape, kernel_size=25), Recurrence(shape)]
        for operation in ("forward", "forward + backward", "inverse"):
            calls, times = [call_of(layer, x, operation) for layer in layers], ([], [])
            for _ in range(ROUNDS):
                for call, taken in zip(calls, times, strict=True):
                    start = time.perf_counter()
                    call()
                    taken.append(time.perf_counter() - start)
            emerging, recurrence = (1e3 * statistics.median(taken[2:]) for taken in times)
            print(f"{shape} x {batch}, {operation}: {emerging:.2f} {recurrence:.2f} ms, {recurrence / emerging:.1f}")


if __name__ == "__main__":
    main()
