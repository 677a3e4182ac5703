"""Measure how much other values before each call change the times of layers: `python tests/benchmarks/rewriting.py`.

Each operation of each layer is timed in turns on fixed values (twice, for the noise) and on new ones. Printed for each
point is the median, over operations, layers and rounds, of the time with new values over that with fixed ones.
"""

import statistics
from typing import get_args

import torch

from harness.core.flags import keep_freed_memory
from harness.timing.operations import perturb, prepare
from harness.timing.settings import Operation, TimingSettings
from harness.timing.timing import measure
from layers import LAYERS

POINTS = (((3, 8, 8), 16), ((3, 32, 32), 16), ((12, 16, 16), 64))
NAMES = ("conv1x1", "butterfly", "emerging", "woodbury", "periodic")
SETTINGS = TimingSettings(warmup=3, warmup_seconds=0.3, rounds=15, min_sample_ms=2.0, budget_seconds=30.0)


def main() -> None:
    """Print a line for each point."""
    torch.set_num_threads(1)
    keep_freed_memory()
    for shape, batch in POINTS:
        ratios: dict[str, list[float]] = {"new": [], "again": []}
        for operation in get_args(Operation):
            cases = {}
            for name in NAMES:
                layer = LAYERS[name](shape)
                perturb(layer, 0.05, torch.Generator().manual_seed(0))
                case = prepare(layer, batch, operation, dtype=torch.float32, device=torch.device("cpu"))
                cases |= {(name, "fixed"): case.call, (name, "again"): case.call, (name, "new"): case}
            results = measure(cases, SETTINGS, torch.device("cpu"))
            for name in NAMES:
                fixed = results[name, "fixed"].samples
                for kind, collected in ratios.items():
                    pairs = zip(results[name, kind].samples, fixed, strict=True)
                    collected.append(statistics.median(one.seconds / other.seconds for one, other in pairs))
        new, again = (statistics.median(ratios[kind]) for kind in ("new", "again"))
        print(f"{'x'.join(map(str, shape))}, batch {batch}: new values {new:.2f}, fixed values again {again:.2f}")


if __name__ == "__main__":
    main()
