"""Profile one training step.

    python tests/benchmarks/profile_step.py image|mimic [LAYER] [--batch N] [--width W] [--threads T]

Prints the median step, the share of each part of the flow (forward and backward of every module alone, at its
input), and the operators that take most. Steps and parts take turns, so that what slows the machine slows both; times
are medians over the rounds, and the step also has its quartiles. The models are the released backbones,
the image one narrower and with fewer steps, so that it fits a laptop. Those of the paper's table of parameters are
`mimic conv1x1 --width 64` (Glow) and `mimic butterfly --width 16` (ButterflyFlow).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections import Counter
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from flows import Glow
from harness.core.flags import keep_freed_memory
from harness.core.settings import FlowSettings, LayerRef, TrainingSettings
from harness.pipeline.models import build_flow
from harness.training.updates import Updates
from layers.kernels import load as kernels

WARM_UP = 3
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "image": {
        "conv1x1": {"parameterisation": "dense"},
        "woodbury": {"rank_channels": 16, "rank_space": 16},
        "butterfly": {"levels": 10, "full_depth_at": 3072, "initialisation": "rotation"},
    },
    "mimic": {
        "emerging": {"kernel_size": 51},
        "periodic": {"kernel_size": 51},
        "butterfly": {"levels": 10, "full_depth_at": 2048, "shared": True, "flatten": "channels_last"},
    },
}


BATCH = {"image": 32, "mimic": 1024}
WIDTH = {"image": 64, "mimic": 16}


def model(case: str, layer: str, width: int, batch: int) -> tuple[Glow, torch.Tensor]:
    """Return the flow and one batch for it."""
    if case == "image":
        shape: tuple[int, ...] = (3, 32, 32)
        settings = FlowSettings(levels=3, steps=4, width=width, mixer="dense", split_step=True)
    else:
        shape = (2, 1024)
        settings = FlowSettings(levels=2, steps=2, width=width)
    options = tuple(sorted(OPTIONS[case].get(layer, {}).items()))
    flow = build_flow(shape, LayerRef(row=layer, layer=layer, options=options), settings, seed=0)
    x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0))
    flow.initialise(x)
    return flow, x


def parts(flow: Glow, x: torch.Tensor) -> Counter[str]:
    """Return the milliseconds of forward and backward, by the last part of each module's path."""
    spent: Counter[str] = Counter()
    for path, module, value in flow.trace(x):
        leaf = value.detach().requires_grad_()
        start = time.perf_counter()
        y, log_det = module(leaf)
        (y.sum() + log_det.sum()).backward()
        spent[path.rpartition("/")[2]] += 1e3 * (time.perf_counter() - start)
    return spent


def main() -> None:
    """Profile one case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=sorted(OPTIONS))
    parser.add_argument("layer", nargs="?", default="butterfly")
    parser.add_argument("--batch", type=int, help="events; 32 images or 1024 sequences if left out")
    parser.add_argument("--width", type=int, help="of the couplings; 64 or 16 if left out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    kernels.load()  # as a trial does before it starts
    batch, width = args.batch or BATCH[args.case], args.width or WIDTH[args.case]
    flow, x = model(args.case, args.layer, width, batch)
    updates = Updates(flow, TrainingSettings(batch_size=batch), points=10 * batch)
    numbers = itertools.count(1)

    def step() -> float:
        start = time.perf_counter()
        updates.step(lambda judged: {"nats_per_dim": -judged.log_prob(x).double() / flow.dim}, next(numbers))
        return 1e3 * (time.perf_counter() - start)

    steps, spent = [], []
    for _ in range(WARM_UP + args.rounds):
        steps.append(step())
        spent.append(parts(flow, x))
    low, middle, high = statistics.quantiles(steps[WARM_UP:], n=4, method="inclusive")
    weights = sum(weight.numel() for weight in flow.parameters())
    print(
        f"{args.case}, {args.layer}, width {width}, {weights:,} parameters, batch {batch}, {args.threads} threads, "
        f"{kernels.backend().name}: "
        f"median step {middle:.1f} ms (quartiles {low:.1f} to {high:.1f}, {args.rounds} steps)"
    )
    medians = {name: statistics.median(step[name] for step in spent[WARM_UP:]) for name in spent[0]}
    for name, median in sorted(medians.items(), key=lambda item: -item[1]):
        print(f"  {name:12} {median:8.1f} ms forward and backward, alone")
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        step()
    events = sorted(recorded.key_averages(), key=lambda event: event.self_cpu_time_total, reverse=True)
    total = sum(event.self_cpu_time_total for event in events)
    for event in events[:12]:
        print(f"  {event.key[:44]:44} {event.count:6} calls {100 * event.self_cpu_time_total / total:5.1f} %")


if __name__ == "__main__":
    main()
