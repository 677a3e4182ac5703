"""Train nflows' own Neural Spline Flow beside the flow of the suite `tables`, on MAGIC, and print nats per row.

`python docs/extensions/nflows_splines.py ROOT` reads the table below the folder ROOT. Both flows have four couplings
with splines of 8 bins on [-3, 3] with the limits of the paper, and residual networks of width 32; they see the same
minibatches, with the same noise. That of nflows has a random permutation and an LU layer, initially the identity,
before each coupling, and masks that alternate. Ours has an ActNorm and the 1x1 convolution by PLU, which starts as a
random orthogonal matrix or as a random permutation. The weights of the best validation value are tested.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from nflows.distributions import StandardNormal
from nflows.flows import Flow
from nflows.nn.nets import ResidualNet
from nflows.transforms import (
    CompositeTransform,
    LULinear,
    PiecewiseRationalQuadraticCouplingTransform,
    RandomPermutation,
)
from tabulate import tabulate
from torch import Tensor, nn

from flows.backbones.columns import Columns
from harness.evaluation.evaluation import nats_per_event
from harness.kinds.density.run import load_splits
from harness.pipeline.pipeline import Pipeline, Split
from harness.planning.settle import load_suite, settle
from layers.conv1x1 import Conv1x1, Initialisation

STEPS, RATE, BATCH, EVERY, SEEDS = 1000, 2e-3, 128, 100, 3
COUPLINGS, WIDTH, CLIP = 4, 32, 5.0


def of_nflows(columns: int) -> nn.Module:
    """Return the Neural Spline Flow as nflows' examples build it."""
    network = partial(ResidualNet, hidden_features=WIDTH, num_blocks=2)
    parts: list[nn.Module] = []
    for number in range(COUPLINGS):
        mask = torch.zeros(columns)
        mask[number % 2 :: 2] = 1
        spline = PiecewiseRationalQuadraticCouplingTransform(mask, network, num_bins=8, tails="linear", tail_bound=3.0)
        parts += [RandomPermutation(columns), LULinear(columns, identity_init=True), spline]
    return Flow(CompositeTransform(parts), StandardNormal([columns]))


def of_tables(columns: int, seed: int, initialisation: Initialisation) -> nn.Module:
    """Return the flow of the suite `tables`, with the limits of the paper."""
    layer = partial(Conv1x1, initialisation=initialisation)
    return Columns((columns, 1), layer, steps=COUPLINGS, width=WIDTH, seed=seed)


def models(columns: int, seed: int) -> dict[str, Callable[[], nn.Module]]:
    """Return name -> function that builds the flow."""
    return {
        "nflows' NSF": partial(of_nflows, columns),
        "ours, from a permutation": partial(of_tables, columns, seed, "permutation"),
        "ours, from an orthogonal matrix": partial(of_tables, columns, seed, "orthogonal"),
    }


def trained(model: nn.Module, pipeline: Pipeline, seed: int, steps: int = STEPS) -> float:
    """Return nats per row of test, in the units of the file, with the weights of the lowest validation value."""
    generator = torch.Generator().manual_seed(seed)
    train = pipeline.raw("train")
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    best, kept = float("inf"), model.state_dict()
    for step in range(1, steps + 1):
        chosen = torch.randint(len(train), (BATCH,), generator=generator)
        loss = -_log_prob(model, pipeline.prepare(train[chosen], generator)[0]).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        if step % EVERY == 0 or step == steps:
            value = _evaluated(model, pipeline, "validation")
            if value < best:
                best, kept = value, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return _evaluated(model, pipeline, "test")


@torch.no_grad()
def _evaluated(model: nn.Module, pipeline: Pipeline, split: Split) -> float:
    x, log_det = pipeline.prepare(pipeline.raw(split)[:], torch.Generator().manual_seed(0))
    measures = pipeline.measures(_log_prob(model, x), log_det)
    return nats_per_event(pipeline, float(measures["nats_per_dim"].mean()))


def _log_prob(model: nn.Module, x: Tensor) -> Tensor:
    """Return log p of rows (N, D, 1), which nflows takes as (N, D)."""
    return model.log_prob(x.flatten(1) if isinstance(model, Flow) else x)


def compare(pipeline: Pipeline, seeds: int = SEEDS, steps: int = STEPS) -> Mapping[str, list[float]]:
    """Return name of a flow -> nats per row of test, for each seed."""
    values: dict[str, list[float]] = {}
    for seed in range(seeds):
        for name, build in models(pipeline.dim, seed).items():
            torch.manual_seed(seed)
            values.setdefault(name, []).append(trained(build(), pipeline, seed + 1, steps))
    return values


def main(root: Path) -> None:
    """Print a row for each flow."""
    torch.set_num_threads(1)
    trial = settle(load_suite("tables"), "local", "cpu", only=["dataset=magic"]).plan()[0].trials[0]
    values = compare(Pipeline(load_splits(trial, root), trial.data, seed=0))
    rows = [(name, *each, float(np.mean(each))) for name, each in values.items()]
    header = ["flow", *(f"seed {seed}" for seed in range(SEEDS)), "mean"]
    print(tabulate(rows, header, "pipe", floatfmt=".3f"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
