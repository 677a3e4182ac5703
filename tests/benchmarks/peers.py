"""Compare layers and training steps with their peers, and measure the commands.

    python tests/benchmarks/peers.py [--threads 2] [--rounds 15] [--rows image butterfly ... processes]

Each row's operation of ours and the peer's, a yardstick in a file of its own here, take turns in one process that keeps
freed memory, as trials do (`harness.timing.timing.measure`). Times are medians over the rounds; a ratio is the peer's
time over ours, the median of the rounds' ratios with its quartiles; an aim is the least ratio wanted. With one thread
the times are processor time, which other processes disturb less.

The rows: `image` and `waveform`, a training step of the released backbones against their released code; `butterfly`,
the layer against the released code; `multiply`, against the C++ of the original butterfly repository, which has no
log-det; `periodic`, against its formulas in plain PyTorch; `emerging`, its forward against its own inverse, and its
inverse against a scalar loop in C++. `processes` is a table of its own: the commands, and a quickstart beside its
training (`processes.py`), in three minutes.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import emerging_yardstick
import multiply_yardstick
import periodic_yardstick
import processes
import profile_step
import torch
from released_yardstick import EagerButterfly, ReleasedFlow, training_step
from tabulate import tabulate
from torch import Tensor

from flows import Glow
from harness.core.flags import keep_freed_memory
from harness.core.provenance.machine import cpu_model
from harness.core.settings import TrainingSettings
from harness.reporting.tables.cells import milliseconds
from harness.timing.settings import TimingSettings
from harness.timing.timing import Measurement, measure
from harness.training.updates import Updates
from layers import InvertibleLinear
from layers.butterfly import Butterfly
from layers.emerging import Emerging
from layers.kernels import load as kernels
from layers.periodic import Periodic

Call = Callable[[], object]
Map = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Row:
    """An operation of ours and the same of a peer; `aim` is the least ratio of the times that is wanted, if any."""

    name: str
    aim: float | None
    ours: Call
    peer: Call


def image() -> Iterator[Row]:
    """Yield the training steps on images."""
    for layer, aim in (("conv1x1", 2.0), ("butterfly", 3.0)):
        yield _step("image", layer, width=64, batch=32, aim=aim)


def waveform() -> Iterator[Row]:
    """Yield the training steps on waveforms."""
    for layer, width, aims in (("conv1x1", 64, (5.0, 6.0)), ("butterfly", 16, (8.0, 10.0))):
        for batch, aim in zip((128, 1024), aims, strict=True):
            yield _step("mimic", layer, width=width, batch=batch, aim=aim)


def butterfly() -> Iterator[Row]:
    """Yield the operations of a butterfly of ten levels on 3x32x32."""
    for batch, aims in ((1, (None,) * 3), (64, (None,) * 3), (256, (60.0, 50.0, 60.0))):
        torch.manual_seed(0)
        layer = Butterfly((3, 32, 32), levels=10, initialisation="rotation")
        peer = EagerButterfly(layer)
        x = torch.randn(batch, *layer.shape)
        for operation, aim in zip(("forward", "forward + backward", "inverse"), aims, strict=True):
            calls = (_operation(operation, each, x) for each in (layer, peer))
            yield Row(f"butterfly, {operation}, batch {batch}", aim, *calls)


def multiply() -> Iterator[Row]:
    """Yield the butterfly's forward + backward against the C++ without log-det."""
    torch.manual_seed(0)
    layer = Butterfly((3, 32, 32), levels=10, initialisation="rotation")
    product, weight = multiply_yardstick.build(), multiply_yardstick.stacked_weight(layer).requires_grad_()
    for batch, aim in ((1, 1.2), (256, None)):
        x = torch.randn(batch, *layer.shape)
        events = multiply_yardstick.stacked_events(x, levels=10).requires_grad_()
        peer = partial(_gradients, partial(product, weight, events), [weight, events], [torch.ones_like(events)])
        ours = _operation("forward + backward", layer, x)
        yield Row(f"butterfly, forward + backward, batch {batch}, peer in C++ without log-det", aim, ours, peer)


def periodic() -> Iterator[Row]:
    """Yield the operations of the periodic layer, batch 64."""
    for shape in ((3, 32, 32), (12, 16, 16), (48, 8, 8)):
        torch.manual_seed(0)
        layer = Periodic(shape)
        x, plain = torch.randn(64, *shape), partial(periodic_yardstick.forward, layer)
        for operation in ("forward", "forward + backward"):
            ours = _operation(operation, layer, x)
            peer = _operation(operation, plain, x, list(layer.parameters()))
            yield Row(f"periodic, {operation}, {_text(shape)}, batch 64", 1.2, ours, peer)


def emerging() -> Iterator[Row]:
    """Yield Emerging's forward against its inverse, and its inverse against the scalar loop, batch 64."""
    scalar = emerging_yardstick.build()
    for shape, kernel_size in (((3, 32, 32), 3), ((12, 16, 16), 3), ((48, 8, 8), 3), ((4, 512), 51)):
        torch.manual_seed(0)
        layer = Emerging(shape, kernel_size=kernel_size)
        wide = Emerging(shape, kernel_size=kernel_size).double()
        wide.load_state_dict(layer.state_dict())
        x = torch.randn(64, *shape)
        y = layer(x)[0].detach()
        forward, inverse = torch.no_grad()(partial(layer, x)), _operation("inverse", layer, y)
        case = f"{_text(shape)}, kernel {kernel_size}, batch 64"
        yield Row(f"Emerging, forward against its own inverse, {case}", 1.0, forward, inverse)
        peer = torch.no_grad()(partial(scalar, wide, y.double()))
        yield Row(f"Emerging, inverse, {case}, peer in C++, scalar", None, inverse, peer)


ROWS = {rows.__name__: rows for rows in (image, waveform, butterfly, multiply, periodic, emerging)}


def _step(case: str, layer: str, width: int, batch: int, aim: float) -> Row:
    """Return the row of one training step."""
    flow, x = profile_step.model(case, layer, width, batch)
    name = f"{'image' if case == 'image' else 'waveform'} training step, {'Glow' if layer == 'conv1x1' else layer}"
    peer = training_step(ReleasedFlow(flow), x)
    return Row(f"{name}, width {width}, batch {batch}", aim, our_step(flow, x), peer)


def our_step(flow: Glow, x: Tensor) -> Call:
    """Return a function that takes one step of training on a batch, as trials do."""
    updates = Updates(flow, TrainingSettings(batch_size=len(x)), points=10 * len(x))
    numbers = itertools.count(1)
    return lambda: updates.step(lambda model: {"nats_per_dim": -model.log_prob(x).double() / model.dim}, next(numbers))


def _operation(
    operation: str, layer: InvertibleLinear | EagerButterfly | Map, x: Tensor, weights: list[Tensor] | None = None
) -> Call:
    """Return a call that performs an operation of a layer, or of a function of these weights, on a batch."""
    if operation == "inverse":
        return torch.no_grad()(lambda: layer.inverse(x))
    x = x.detach().requires_grad_()
    if operation == "forward":
        return partial(layer, x)
    leaves = [x, *(layer.parameters() if weights is None else weights)]
    return partial(_gradients, partial(layer, x), leaves, [torch.ones_like(x), x.new_ones(())])


def _gradients(forward: Call, leaves: list[Tensor], seeds: list[Tensor]) -> object:
    return torch.autograd.grad(forward(), leaves, seeds)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def cells(row: Row, measured: dict[str, Measurement], clock: str) -> tuple[str, ...]:
    """Return a line of the table: the row, our milliseconds, the peer's, their ratio, and the aim."""
    ours, peer = ([getattr(sample, clock) for sample in measured[side].samples] for side in ("ours", "peer"))
    ratios = [second / first for first, second in zip(ours, peer, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    times = (milliseconds(1e3 * statistics.median(side)) for side in (ours, peer))
    aim = "–" if row.aim is None else f"{row.aim:g}"
    return row.name, *times, f"{middle:.3g} ({low:.3g} to {high:.3g})", aim


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
    headers = ("operation", f"ours, {unit}", f"peer, {unit}", "peer / ours (quartiles)", "aim, at least")
    return tabulate(lines, headers, tablefmt="github", disable_numparse=True)


def main() -> None:
    """Measure and print."""
    names = [*ROWS, "processes"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15, help="fewer of a row that takes more than a minute")
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW", help=", ".join(names))
    args = parser.parse_args()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {cpu_model()}, torch {torch.__version__} "
        f"({torch.backends.cpu.get_cpu_capability()}), kernels {kernels.backend().instructions}, "
        f"{args.threads} thread{'s' * (args.threads > 1)}, {args.rounds} rounds, float32"
    )
    if compared := [name for name in args.rows if name in ROWS]:
        timing = TimingSettings(warmup=3, warmup_seconds=0.5, rounds=args.rounds, min_sample_ms=2.0)
        print(f"\n{compare(compared, timing, args.threads)}", flush=True)
    if "processes" in args.rows:
        print(f"\n{processes.table()}")


if __name__ == "__main__":
    main()
