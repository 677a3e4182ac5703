"""Time and memory of one training step of every row of the density suite, beside those of Glow.

    python tests/benchmarks/flow_steps.py [--profile quick] [--dataset digits] [--device cpu] [--rounds 9]

The rows take turns in one process, so that what else the machine does meets all of them; a time is the median over the
rounds, after two steps that warm up. Memory is the most that one step holds beyond weights, optimiser and batch, as
torch's allocator counts it. Glow is the row conv1x1. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from tabulate import tabulate

from flows import UnsupportedEvent
from harness.core.flags import keep_freed_memory
from harness.datasets import Store, find_dataset
from harness.evaluation.evaluation import has_estimates
from harness.kinds.density.trial import DensityTrial
from harness.pipeline.models import build_flow
from harness.pipeline.pipeline import Pipeline
from harness.planning.settle import load_suite, settle
from harness.timing.peak_memory import peak_bytes
from harness.timing.settings import TimingSettings
from harness.timing.timing import measure
from harness.training.updates import Updates
from layers import UnsupportedShape

ROOT = Path(__file__).resolve().parents[2]
BASE = "conv1x1"
WARM_UP = 2


def training_step(trial: DensityTrial, pipeline: Pipeline) -> tuple[Callable[[], object], int]:
    """Return a function that takes one step on a fixed batch, and the number of weights."""
    flow = build_flow(pipeline.shape, trial.layer, trial.flow, trial.seed).to(pipeline.device)
    noise = torch.Generator(pipeline.device).manual_seed(0)
    values = pipeline.raw("train")[: trial.training.batch_size]
    x, log_det = pipeline.prepare(values, noise)
    flow.initialise(x)
    flow.train()
    updates = Updates(flow, trial.training, len(pipeline.raw("train")))
    chance = [torch.Generator().manual_seed(0)] if has_estimates(flow) else []
    counted = iter(range(1, 1000))

    def step() -> None:
        updates.step(lambda judged: pipeline.measures(judged.log_prob(x, *chance), log_det), next(counted))
        if pipeline.device.type == "cuda":
            torch.cuda.synchronize()

    return step, sum(weight.numel() for weight in flow.parameters())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    suite = load_suite(ROOT / "suites" / "density.yaml")
    _, trials = settle(suite, args.profile, args.device, only=[f"dataset={args.dataset}"], seeds=1).plan()
    picked = [trial for trial in trials if isinstance(trial, DensityTrial)]
    data = picked[0].data
    splits = find_dataset(data.name).load(Store.at(None, offline=True), dict(data.options))
    pipeline = Pipeline(splits, data, device=args.device)
    steps: dict[str, Callable[[], object]] = {}
    weights: dict[str, int] = {}
    for trial in picked:
        row = trial.layer.row
        try:
            steps[row], weights[row] = training_step(trial, pipeline)
        except (UnsupportedShape, UnsupportedEvent) as error:
            print(f"{row}: {error}")
    measured = measure(steps, TimingSettings(warmup=WARM_UP, rounds=args.rounds), torch.device("cpu"))
    times = {row: [1e3 * sample.seconds for sample in each.samples] for row, each in measured.items()}
    memory = {row: peak_bytes(partial(step), pipeline.device) / 2**20 for row, step in steps.items()}
    usual = {row: statistics.median(values) for row, values in times.items()}
    lines = [
        (
            row,
            f"{weights[row]:,}",
            f"{usual[row]:.1f} ({min(times[row]):.1f} to {max(times[row]):.1f})",
            f"{usual[row] / usual[BASE]:.2f}",
            f"{memory[row]:.1f}",
            f"{memory[row] / memory[BASE]:.2f}",
        )
        for row in steps
    ]
    headers = ("row", "parameters", "step, ms (range)", "of Glow's", "memory, MiB", "of Glow's")
    threads = f"{args.threads} thread{'s' * (args.threads != 1)}"
    print(f"{args.dataset}, profile {args.profile}, batch {picked[0].training.batch_size}, {args.device}, {threads}\n")
    print(tabulate(lines, headers, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
