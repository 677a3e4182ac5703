"""Compare the butterfly and training steps with the released code of ButterflyFlow (`released_yardstick.py`).

    python tests/benchmarks/peers.py [--threads 2] [--rounds 15] [--rows image waveform butterfly recurrence]

Our operation and the peer's take turns in one process that keeps freed memory, as trials do
(`harness.timing.timing.measure`). Times are medians over the rounds; a ratio is the peer's time over ours, the median
of the rounds' ratios with its quartiles. With one thread the times are processor time, which other processes disturb
less. The rows `image` and `waveform` are training steps of the released backbones.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch
from released_yardstick import EagerButterfly, ReleasedFlow, training_step
from tabulate import tabulate
from torch import Tensor

from flows import Glow
from harness.core.flags import keep_freed_memory
from harness.core.provenance.environment import cpu_model
from harness.core.settings import FlowSettings, LayerRef, TrainingSettings
from harness.pipeline.models import build_flow
from harness.reporting.tables.cells import milliseconds
from harness.timing.settings import TimingSettings
from harness.timing.timing import Measurement, measure
from harness.training.updates import Updates
from layers import InvertibleLinear
from layers.butterfly import Butterfly
from layers.emerging import Emerging
from layers.kernels import load as kernels
from layers.recurrence import Recurrence

Call = Callable[[], object]
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "image": {
        "conv1x1": {"parameterisation": "dense"},
        "butterfly": {"levels": 10, "full_depth_at": 3072, "initialisation": "rotation"},
    },
    "mimic": {
        "butterfly": {"levels": 10, "full_depth_at": 2048, "shared": True, "flatten": "channels_last"},
    },
}


@dataclass(frozen=True)
class Row:
    """An operation of ours and the same of a peer."""

    name: str
    ours: Call
    peer: Call


def model(case: str, layer: str, width: int, batch: int) -> tuple[Glow, Tensor]:
    """Return a flow and one batch for it: the released backbones, the image one narrower and with fewer steps."""
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


def image() -> Iterator[Row]:
    """Yield the training steps on images."""
    for layer in ("conv1x1", "butterfly"):
        yield _step("image", layer, width=64, batch=32)


def waveform() -> Iterator[Row]:
    """Yield the training steps on waveforms."""
    for layer, width in (("conv1x1", 64), ("butterfly", 16)):
        for batch in (128, 1024):
            yield _step("mimic", layer, width=width, batch=batch)


def butterfly() -> Iterator[Row]:
    """Yield the operations of a butterfly of ten levels on 3x32x32."""
    for batch in (1, 64, 256):
        torch.manual_seed(0)
        layer = Butterfly((3, 32, 32), levels=10, initialisation="rotation")
        peer = EagerButterfly(layer)
        x = torch.randn(batch, *layer.shape)
        for operation in ("forward", "forward + backward", "inverse"):
            calls = (_operation(operation, each, x) for each in (layer, peer))
            yield Row(f"butterfly, {operation}, batch {batch}", *calls)


def recurrence() -> Iterator[Row]:
    """Yield the operations of the recurrence beside an Emerging convolution of 25, at shapes of a flow's levels.

    On one thread of a shared AMD EPYC 8 states take 0.9 to 3.4 times as long forward and backward, and 0.9 to 5.1 times
    without gradients, above 4 at 4x256 alone, where calls of 0.5 ms are mostly the preparation of the weights.
    """
    for shape, batch in (((8, 5000), 8), ((16, 2500), 8), ((4, 256), 32), ((16, 250), 32), ((8, 128), 32)):
        x = torch.randn(batch, *shape)
        for operation in ("forward", "forward + backward", "inverse"):
            calls = (_operation(operation, layer, x) for layer in (Recurrence(shape), Emerging(shape, kernel_size=25)))
            yield Row(f"recurrence, {operation}, {shape}, batch {batch}", *calls)


ROWS = {rows.__name__: rows for rows in (image, waveform, butterfly, recurrence)}


def _step(case: str, layer: str, width: int, batch: int) -> Row:
    """Return the row of one training step."""
    flow, x = model(case, layer, width, batch)
    name = f"{'image' if case == 'image' else 'waveform'} training step, {'Glow' if layer == 'conv1x1' else layer}"
    peer = training_step(ReleasedFlow(flow), x)
    return Row(f"{name}, width {width}, batch {batch}", our_step(flow, x), peer)


def our_step(flow: Glow, x: Tensor) -> Call:
    """Return a function that takes one step of training on a batch, as trials do."""
    updates = Updates(flow, TrainingSettings(batch_size=len(x)), points=10 * len(x))
    numbers = itertools.count(1)
    return lambda: updates.step(lambda model: {"nats_per_dim": -model.log_prob(x).double() / model.dim}, next(numbers))


def _operation(operation: str, layer: InvertibleLinear | EagerButterfly, x: Tensor) -> Call:
    """Return a call that performs an operation of a layer on a batch."""
    if operation == "inverse":
        return torch.no_grad()(lambda: layer.inverse(x))
    x = x.detach().requires_grad_()
    if operation == "forward":
        return partial(layer, x)
    leaves, seeds = [x, *layer.parameters()], [torch.ones_like(x), x.new_ones(())]
    return lambda: torch.autograd.grad(layer(x), leaves, seeds)


def cells(row: Row, measured: dict[str, Measurement], clock: str) -> tuple[str, ...]:
    """Return a line of the table: the row, our milliseconds, the peer's, and their ratio."""
    ours, peer = ([getattr(sample, clock) for sample in measured[side].samples] for side in ("ours", "peer"))
    ratios = [second / first for first, second in zip(ours, peer, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    times = (milliseconds(1e3 * statistics.median(side)) for side in (ours, peer))
    return row.name, *times, f"{middle:.3g} ({low:.3g} to {high:.3g})"


def compare(names: list[str], timing: TimingSettings, threads: int) -> str:
    """Measure the rows of these names, and return the table."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    clock = "cpu_seconds" if threads == 1 else "seconds"
    lines = []
    for row in itertools.chain.from_iterable(ROWS[name]() for name in names):
        measured = measure({"ours": row.ours, "peer": row.peer}, timing, torch.device("cpu"))
        lines.append(cells(row, measured, clock))
    unit = "ms of processor time" if threads == 1 else "ms"
    headers = ("operation", f"ours, {unit}", f"peer, {unit}", "peer / ours (quartiles)")
    return tabulate(lines, headers, tablefmt="github", disable_numparse=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15, help="fewer of a row that takes more than a minute")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=[*ROWS])
    args = parser.parse_args()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {cpu_model()}, torch {torch.__version__} "
        f"({torch.backends.cpu.get_cpu_capability()}), kernels {kernels.backend().instructions}, "
        f"{args.threads} thread{'s' * (args.threads > 1)}, {args.rounds} rounds, float32"
    )
    timing = TimingSettings(warmup=3, warmup_seconds=0.5, rounds=args.rounds, min_sample_ms=2.0)
    print(f"\n{compare(args.rows, timing, args.threads)}")


if __name__ == "__main__":
    main()
