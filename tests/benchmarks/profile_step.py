"""Where the time of one training step goes: `python tests/benchmarks/profile_step.py image|mimic [LAYER]`.

Prints the median step, the share of each part of the flow (forward and backward of every module alone, at its own
input), and the operators that take most. One thread; the models are the released backbones, the image one narrower
and with fewer steps, so that it fits a laptop.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from flows import Glow
from harness.settings import FlowSettings, LayerRef, TrainingSettings
from harness.trials.flags import keep_freed_memory
from harness.trials.models import build_flow
from harness.trials.updates import Updates

STEPS = 7
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


def model(case: str, layer: str) -> tuple[Glow, torch.Tensor]:
    """The flow, and one batch for it."""
    if case == "image":
        shape, batch = (3, 32, 32), 32
        settings = FlowSettings(levels=3, steps=4, width=64, mixer="dense", split_step=True)
    else:
        shape, batch = (2, 1024), 1024
        settings = FlowSettings(levels=2, steps=2, width=16)
    options = tuple(sorted(OPTIONS[case].get(layer, {}).items()))
    flow = build_flow(shape, LayerRef(row=layer, layer=layer, options=options), settings, seed=0)
    x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0))
    flow.initialise(x)
    return flow, x


def parts(flow: Glow, x: torch.Tensor) -> Counter[str]:
    """Milliseconds of forward and backward, by the last word of each module's path."""
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=sorted(OPTIONS))
    parser.add_argument("layer", nargs="?", default="butterfly")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    flow, x = model(args.case, args.layer)
    updates = Updates(flow, TrainingSettings(batch_size=len(x)), points=10 * len(x))

    def step(number: int) -> None:
        updates.step(lambda judged: {"nats_per_dim": -judged.log_prob(x).double() / flow.dim}, number)

    times = []
    for number in range(1, STEPS + 1):
        start = time.perf_counter()
        step(number)
        times.append(1e3 * (time.perf_counter() - start))
    print(f"{args.case}, {args.layer}, batch {len(x)}: median step {statistics.median(times[2:]):.0f} ms")
    for name, spent in parts(flow, x).most_common():
        print(f"  {name:12} {spent:8.0f} ms forward and backward, alone")
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        step(STEPS + 1)
    events = sorted(recorded.key_averages(), key=lambda event: event.self_cpu_time_total, reverse=True)
    total = sum(event.self_cpu_time_total for event in events)
    for event in events[:10]:
        print(f"  {event.key[:44]:44} {event.count:6} calls {100 * event.self_cpu_time_total / total:5.1f} %")


if __name__ == "__main__":
    main()
