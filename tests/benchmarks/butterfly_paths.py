"""Compare fused with separate factors: `python tests/benchmarks/butterfly_paths.py [THREADS]`.

Prints the table in the docstring of layers/butterflies/fused.py: level by level against fused, in milliseconds of wall
time, both from events in rows to events in rows, the two alternating.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch

from harness.core.flags import keep_freed_memory
from layers.butterflies import fused as butterfly_fused
from layers.butterflies import pairs
from layers.butterflies.plan import make_plan

ROUNDS = 31
SAMPLE_SECONDS = 0.004
PLANS = {
    "D = 3072, 10 levels": make_plan(3072, levels=10),
    "D = 2048, 10 levels, shared": make_plan(2048, levels=10, shared=True),
    "D = 768, 3 levels": make_plan(768, levels=3),
}
BATCHES = (1, 16, 32, 64, 256)


def medians(calls: list[Callable[[], object]]) -> list[float]:
    """Return the milliseconds per call of each, sampled alternately."""
    repeats = []
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        repeats.append(max(1, round(SAMPLE_SECONDS / (time.perf_counter() - start))))
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, count, taken in zip(calls, repeats, samples, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                call()
            taken.append(1e3 * (time.perf_counter() - start) / count)
    return [statistics.median(taken) for taken in samples]


def main(threads: int) -> None:
    """Print a line for each plan and batch."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    for name, plan in PLANS.items():
        weight = torch.randn(2, 2, sum(plan.lengths), requires_grad=True)
        for batch in BATCHES:
            rows = torch.randn(batch, plan.sizes[0], requires_grad=True)
            seed = torch.ones_like(rows)

            def forward(module, rows=rows, weight=weight, plan=plan):
                return module.apply(weight, rows.T.contiguous(), plan).T.contiguous()

            def backward(module, rows=rows, weight=weight, seed=seed, forward=forward):
                return torch.autograd.grad(forward(module), (rows, weight), seed)

            paths = (pairs, butterfly_fused)
            times = medians([lambda way=way, path=path: way(path) for way in (forward, backward) for path in paths])
            print(f"{name:28} {batch:5} " + " ".join(f"{time:8.2f}" for time in times))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
