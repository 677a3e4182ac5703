"""Time training steps on images with the couplings' compiled networks, and with plain PyTorch's.

    python tests/benchmarks/image_couplings.py [--threads T] [--rounds N]

The variants take turns in a random order within one process. Prints medians of the milliseconds of a step, their ratios
to plain PyTorch's, which is measured twice (the difference is noise), and the relative difference of all gradients.
With one thread the times are processor time, which other processes disturb less.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from contextlib import nullcontext
from unittest import mock

import torch
from profile_step import OPTIONS

from flows import Glow, convolutions
from flows.protocol import Flow
from harness.core.flags import keep_freed_memory
from harness.core.settings import FlowSettings, LayerRef, TrainingSettings
from harness.pipeline.models import build_flow
from harness.training.updates import Updates
from layers.kernels import load as kernels

WARM_UP = 3
PLAIN = {"WIDEST": 0}
VARIANTS: dict[str, dict[str, int]] = {"plain": PLAIN, "plain again": PLAIN, "compiled": {}}
IMAGE = FlowSettings(levels=3, steps=4, width=64, mixer="dense", split_step=True)
DIGITS = FlowSettings(levels=2, steps=4, width=32, mixer="dense")
DENSE = ("conv1x1", OPTIONS["image"]["conv1x1"])
CASES = [
    ((3, 32, 32), 32, IMAGE, DENSE),
    ((3, 32, 32), 32, IMAGE, ("butterfly", OPTIONS["image"]["butterfly"])),
    ((3, 32, 32), 4, IMAGE, DENSE),
    ((3, 32, 32), 1, IMAGE, DENSE),
    ((1, 8, 8), 64, DIGITS, DENSE),
    ((1, 8, 8), 1, DIGITS, DENSE),
]


def gradients(flow: Glow, x: torch.Tensor) -> torch.Tensor:
    """Return the gradients of the loss with respect to all parameters, flattened."""
    found = torch.autograd.grad(-flow.log_prob(x).mean(), list(flow.parameters()))
    return torch.cat([gradient.flatten() for gradient in found])


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9, help="steps of a batch of 32; of smaller batches more")
    args = parser.parse_args()
    clock = time.process_time if args.threads == 1 else time.perf_counter
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    print(f"torch {torch.__version__}, {args.threads} threads, {kernels.backend().instructions}")
    for shape, batch, settings, (layer, options) in CASES:
        torch.manual_seed(0)
        flow = build_flow(shape, LayerRef(row=layer, layer=layer, options=tuple(sorted(options.items()))), settings, 0)
        x = torch.randn(batch, *shape)
        flow.initialise(x)
        with torch.no_grad():
            for weight in flow.parameters():
                weight.add_(0.02 * torch.randn_like(weight))
        before = gradients(flow, x)
        with mock.patch.multiple(convolutions, **VARIANTS["plain"]):
            difference = (gradients(flow, x) - before).norm() / before.norm()

        def density(model: Flow, x: torch.Tensor = x) -> dict[str, torch.Tensor]:
            return {"nats_per_dim": -model.log_prob(x).double() / model.dim}

        updates = Updates(flow, TrainingSettings(batch_size=batch), points=10 * batch)
        numbers = itertools.count(1)
        spent: dict[str, list[float]] = {name: [] for name in VARIANTS}
        for _ in range(WARM_UP + args.rounds * max(1, min(5, 32 // batch))):
            for name, parts in random.sample(list(VARIANTS.items()), len(VARIANTS)):
                with mock.patch.multiple(convolutions, **parts) if parts else nullcontext():
                    start = clock()
                    updates.step(density, next(numbers))
                    spent[name].append(1e3 * (clock() - start))
        medians = {name: statistics.median(times[WARM_UP:]) for name, times in spent.items()}
        print(
            f"{layer}, {'x'.join(map(str, shape))}, width {settings.width}, batch {batch}: gradients {difference:.1e}"
        )
        for name, median in medians.items():
            print(f"  {name:22} {median:8.2f} ms {median / medians['plain']:6.2f}")


if __name__ == "__main__":
    main()
