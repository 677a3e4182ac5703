"""Build, test and time everything on a machine with a CUDA device:

python tests/benchmarks/device_run.py --out reports/runtime-gpu

On an H100, its tests and measurements took five and a half minutes, without the report of the suite at the end.

Writes into the folder, which must be new: `results.csv` (every time, with device, driver and clocks), `device.json`,
`kernels.csv` (which kernels a call starts, and for how long), where Nsight Compute is installed its counters of the
same calls (`nsight.csv`), and the runtime suite's own report in `runtime/`. Times are medians, by the device's clock,
each with the caches full of something else; once as a call is made, and once captured in a CUDA graph. Exit code 1
where a test fails or the suite does.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

sys.path.append(str(Path(__file__).parents[2] / "docs" / "extensions"))  # multiplied_out

Row = dict[str, Any]

ROUNDS = 20
CALLS = 5
WARM_UPS = 3  # runs of a call before it is captured, as CUDA asks
SIDES = (4, 8, 16, 32, 64, 128)
CHANNELS = (6, 12, 24, 48, 96, 192)
# The paper's sweeps, and larger batches.
POINTS = [
    *(((3, 32, 32), 2**power) for power in range(11)),
    *(((channels, side, side), 64) for channels in (3, 1) for side in SIDES if (channels, side) != (3, 32)),
    *((shape, 64) for shape in ((3, 32, 64), (3, 64, 128))),
    *(((channels, 32, 32), 64) for channels in CHANNELS),
    *(((3, side, side), 1024) for side in (16, 64, 128)),
    *(((channels, 32, 32), 1024) for channels in (12, 48)),
    ((3, 32, 32), 8192),
]
YARDSTICK_ENTRIES = 2**25
MIMIC_BATCH = 1024
MIMIC_STEPS = 50
BUTTERFLY, PLU, EMERGING, YARDSTICK = "butterfly", "conv1x1-plu", "emerging", "butterfly, level by level"
MULTIPLIED, MADE = "butterfly, multiplied out", ", blocks made before"
LOOKED_AT = (((3, 32, 32), 1), ((3, 32, 32), 1024), ((48, 32, 32), 1024))  # points whose kernels are looked at
NSIGHT_SECONDS = 120
SUITE = ("--set", "timing.processes=1", "--set", "timing.budget_seconds=1.0")  # so that it takes minutes


def milliseconds(call: Callable[[], object]) -> float:
    """Return the median over rounds, after as many warm-up calls."""
    from harness.timing.timing import device_seconds

    device = torch.device("cuda")
    device_seconds(call, ROUNDS, device)
    return 1e3 * statistics.median(device_seconds(call, CALLS, device) for _ in range(ROUNDS))


def timed(call: Callable[[], object]) -> Row:
    """Return both times of a call, with a remark if it synchronises and cannot be captured."""
    times: Row = {"ms": milliseconds(call), "graph_ms": None, "no_graph": None}
    try:
        times["graph_ms"] = milliseconds(captured(call))
    except RuntimeError as error:
        times["no_graph"] = str(error).partition("\n")[0]
    return times


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """Return a call as a CUDA graph, which starts all of it at once; raise RuntimeError where it cannot be captured."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


@cache
def candidate() -> Any:
    """Return the kernels of docs/extensions/products, compiled for this device."""
    from multiplied_out import Products

    from layers.kernels.cuda import present_architectures

    return Products(Path(tempfile.mkdtemp()), present_architectures()[0])


def rows_of(shape: tuple[int, int, int], batch: int) -> list[Row]:
    """Return the rows of every operation of one point, after that of a copy of its tensor."""
    from multiplied_out import TILES, MultipliedOut, blocks_of, transposed

    from harness.timing.operations import prepare
    from layers.butterflies import pairs
    from layers.butterfly import Butterfly
    from layers.conv1x1 import Conv1x1
    from layers.emerging import Emerging

    butterfly = Butterfly(shape, levels=10, capped=True, initialisation="rotation")
    second = MultipliedOut(shape, levels=10, capped=True, initialisation="rotation")
    layers = {
        PLU: Conv1x1(shape, parameterisation="plu"),
        BUTTERFLY: butterfly,
        EMERGING: Emerging(shape, kernel_size=3),
        MULTIPLIED: second,
    }
    x = torch.randn(batch, *shape, device="cuda")
    y = torch.empty_like(x)
    point: Row = {"shape": "x".join(map(str, shape)), "batch": batch}
    rows = [point | {"layer": "copy", "operation": "copy"} | timed(lambda: y.copy_(x))]
    for name, layer in layers.items():
        for operation in ("inverse",) if name == EMERGING else ("forward", "forward_backward", "inverse"):
            call = prepare(layer, batch, operation, dtype=torch.float32, device=x.device)
            rows.append(point | {"layer": name, "operation": operation} | timed(call))
    with torch.no_grad():
        blocks = transposed(blocks_of(second.weight, second.plan))
        row = point | {"layer": MULTIPLIED, "operation": f"forward{MADE}"}
        rows.append(row | timed(lambda: second.multiplied(blocks, x)))
        for tiles, name in enumerate(TILES):
            difference = (candidate().forward(blocks, x, tiles) - second.multiplied(blocks, x)).abs().max().item()
            print(f"candidate, {name}: differs by at most {difference:.1e}", flush=True)
            row = point | {"layer": f"{MULTIPLIED}, {name}"}
            for operation in ("forward", "forward_backward"):
                call = partial(getattr(candidate(), operation), blocks, x, tiles)
                rows.append(row | {"operation": f"{operation}{MADE}"} | timed(call))
    if batch * butterfly.dim <= YARDSTICK_ENTRIES:

        def levels() -> object:
            entries = pairs.apply(butterfly.weight, butterfly._flat(x).flatten(1).T.contiguous(), butterfly.plan)
            return entries, pairs.log_abs_det(butterfly.weight, butterfly.multiplicity)

        rows.append(point | {"layer": YARDSTICK, "operation": "forward"} | timed(levels))
    return rows


def looked_at() -> Iterator[tuple[Row, Callable[[], object]]]:
    """Yield the calls whose kernels are looked at, each with its point, after one that warms up."""
    from multiplied_out import MultipliedOut

    from harness.timing.operations import prepare
    from layers.butterfly import Butterfly

    for shape, batch in LOOKED_AT:
        for name, cls in ((BUTTERFLY, Butterfly), (MULTIPLIED, MultipliedOut)):
            layer = cls(shape, levels=10, capped=True, initialisation="rotation")
            for operation in ("forward", "forward_backward"):
                call = prepare(layer, batch, operation, dtype=torch.float32, device=torch.device("cuda"))
                call()
                torch.cuda.synchronize()
                yield {"shape": "x".join(map(str, shape)), "batch": batch, "layer": name, "operation": operation}, call


def kernels_of(call: Callable[[], object], activity: ProfilerActivity = ProfilerActivity.CUDA) -> list[Row]:
    """Return the kernels that a call starts: the name of each, how often, and its microseconds in all."""
    with torch.profiler.profile(activities=[activity]) as profile:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    found = sorted(profile.key_averages(), key=lambda kernel: -kernel.device_time_total)
    return [{"kernel": each.key, "calls": each.count, "microseconds": each.device_time_total} for each in found]


def look(out: Path) -> None:
    """Write kernels.csv and, where Nsight Compute can count, nsight.csv."""
    write_csv(out / "kernels.csv", [point | kernel for point, call in looked_at() for kernel in kernels_of(call)])
    if (nsight := shutil.which("ncu")) is not None:
        counted = [nsight, "--set", "detailed", "--csv", "--log-file", str((out / "nsight.csv").resolve())]
        calls = "import device_run; [call() for _, call in device_run.looked_at()]"
        with contextlib.suppress(subprocess.TimeoutExpired):  # what follows matters more
            command = [*counted, sys.executable, "-c", calls]
            subprocess.run(command, cwd=Path(__file__).parent, check=False, timeout=NSIGHT_SECONDS)


def mimic_row() -> Row:
    """Return the row of a training step of ButterflyFlow on sequences, width 16, on a batch that is on the device."""
    from harness.core.settings import FlowSettings, LayerRef, TrainingSettings
    from harness.pipeline.models import build_flow
    from harness.training.updates import Updates

    options = {"levels": 10, "full_depth_at": 2048, "shared": True, "flatten": "channels_last"}
    layer = LayerRef(row=BUTTERFLY, layer="butterfly", options=tuple(sorted(options.items())))
    x = torch.randn(MIMIC_BATCH, 2, 1024, device="cuda")
    log_det = torch.zeros(MIMIC_BATCH, device="cuda")
    flow = build_flow((2, 1024), layer, FlowSettings(levels=2, steps=2, width=16), seed=0).cuda()
    flow.initialise(x)
    updates = Updates(flow, TrainingSettings(batch_size=MIMIC_BATCH), points=10 * MIMIC_BATCH)

    def measure(model: Any) -> Any:
        return {"nats_per_dim": -(model.log_prob(x).double() + log_det) / flow.dim}

    times = []
    for number in range(1, MIMIC_STEPS + 1):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        updates.step(measure, number)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    name, ms = "ButterflyFlow, width 16", statistics.median(times[MIMIC_STEPS // 2 :])
    return {"shape": "2x1024", "batch": MIMIC_BATCH, "layer": name, "operation": "training step", "ms": ms}


def write(out: Path, rows: Sequence[Row], about: Row) -> None:
    """Write results.csv."""
    facts = {"device": about["name"], "driver": about["driver"], **about["clocks_mhz"]}
    write_csv(out / "results.csv", [row | facts for row in rows])


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows, of which the first has all names."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("reports/runtime-gpu"))
    out = parser.parse_args(arguments).out
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        print(f"device_run: {out} is there already; name a new folder with --out", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("device_run: there is no CUDA device here, and nothing to time; nothing was written", file=sys.stderr)
        return 2
    from harness.core.provenance.environment import environment
    from layers.kernels import load as kernels

    out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    if not kernels.load("cuda"):  # which has warned with the reason
        return 1
    print(f"{kernels.backend('cuda')}, {time.monotonic() - begin:.0f} s", flush=True)
    tests = ["-m", "pytest", "-q", "-m", "cuda", "tests/layers/test_cuda_kernels.py"]
    tested = subprocess.run([sys.executable, *tests], check=False).returncode
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    facts = environment("cuda")
    (out / "device.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    rows = []
    for shape, batch in POINTS:
        rows += rows_of(shape, batch)
        print(rows[-1], flush=True)
        write(out, rows, facts["cuda"])  # keep the times measured before a failure
    rows.append(mimic_row())
    write(out, rows, facts["cuda"])
    look(out)
    suite = ["suites/runtime.yaml", "--profile", "quick", "--device", "cuda", "--out", str(out), *SUITE]
    reported = subprocess.run([sys.executable, "-m", "harness", "run", *suite], check=False).returncode
    print(f"{time.monotonic() - begin:.0f} s in all")
    return int(tested != 0 or reported != 0)


if __name__ == "__main__":
    sys.exit(main())
