"""Time one stage for each radix: `python tests/benchmarks/radix_stages.py`.

Prints the table in the docstring of layers/butterflies/stages.py: nanoseconds of wall time for each entry of each
event, one stage on about 3,000 entries, a batch of 64, float32, one thread; and its free parameters for each entry.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from layers.butterflies.stages import PLUStages, Stage
from layers.butterfly import Butterfly
from layers.linalg.plu import random_rotations

RADICES = (2, 3, 5, 7, 11, 13, 17, 23, 31, 37, 61, 127)
ENTRIES, BATCH, SAMPLES, CALLS = 3072, 64, 21, 4


def seconds(call: Callable[[], object]) -> float:
    """Return the median time of a call."""
    samples = []
    call()
    for _ in range(SAMPLES):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        samples.append((time.perf_counter() - start) / CALLS)
    return statistics.median(samples)


def main() -> None:
    """Print one line for each radix."""
    torch.set_num_threads(1)
    for radix in RADICES:
        groups = ENTRIES // radix
        size = radix * groups
        if radix == 2:
            stage: torch.nn.Module = Butterfly((1, size), levels=[1], initialisation="rotation")
        else:
            stage = PLUStages((1, size), [size], [[Stage(radix, 1, groups)]], False, [random_rotations(groups, radix)])
        x = torch.randn(BATCH, 1, size, requires_grad=True)

        def forward(stage: torch.nn.Module = stage, x: torch.Tensor = x) -> torch.Tensor:
            y, log_det = stage(x)
            return y.sum() + log_det

        times = [seconds(forward), seconds(lambda forward=forward: forward().backward())]
        per_entry = " ".join(f"{1e9 * each / size / BATCH:8.2f}" for each in times)
        print(f"{radix:4d} {per_entry} {radix:6d} parameters per entry")


if __name__ == "__main__":
    main()
