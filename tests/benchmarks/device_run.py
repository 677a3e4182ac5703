"""On a machine with a CUDA device, one command that builds, tests and times everything, in less than ten minutes:

python tests/benchmarks/device_run.py --out reports/runtime-h200

Writes `OUT/kernels.csv` (the butterfly and Emerging's inverse beside a copy, the 1x1 convolution and the eager
yardstick; as they are called, and captured in a graph), `OUT/device.json` (device, driver, clocks, builds) and the
runtime suite's report, `OUT/runtime/`. Ends with another exit code than 0 where a test fails.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from harness.trials.device_clock import captured, device_seconds
from harness.trials.environment import environment
from harness.trials.operations import prepare
from layers import butterfly_factors, kernels
from layers.butterfly import Butterfly
from layers.conv1x1 import Conv1x1
from layers.emerging import Emerging

ROUNDS = 20
CALLS = 5
SHAPES = [(3, 32, 32), (3, 64, 64), (3, 128, 128), (12, 32, 32), (48, 32, 32), (192, 32, 32)]
BATCHES = [1, 64, 1024, 8192]
ENTRIES = 2**28  # of a batch, at most


def milliseconds(call: Callable[[], object]) -> float:
    """The median over rounds, after as many calls unmeasured."""
    device = torch.device("cuda")
    device_seconds(call, ROUNDS, device)
    return 1e3 * statistics.median(device_seconds(call, CALLS, device) for _ in range(ROUNDS))


def yardstick(layer: Butterfly, x: torch.Tensor) -> Callable[[], object]:
    """The butterfly level by level, as plain PyTorch."""
    return lambda: (
        butterfly_factors.apply(layer.weight, layer._entries(x), layer.plan),
        butterfly_factors.log_abs_det(layer.weight, layer.multiplicity),
    )


def rows_of(shape: tuple[int, int, int], batch: int) -> list[dict[str, object]]:
    """Every operation of one point."""
    layers = {
        "conv1x1-plu": Conv1x1(shape, parameterisation="plu"),
        "butterfly": Butterfly(shape, levels=10, capped=True, initialisation="rotation"),
        "emerging": Emerging(shape, kernel_size=3),
    }
    x = torch.randn(batch, *shape, device="cuda")
    y = torch.empty_like(x)
    copy = milliseconds(lambda: y.copy_(x))
    rows: list[dict[str, object]] = []

    def add(layer: str, operation: str, call: Callable[[], object]) -> None:
        point = {"shape": "x".join(map(str, shape)), "batch": batch, "layer": layer, "operation": operation}
        try:
            in_graph: float | str = milliseconds(captured(call))
        except RuntimeError as error:  # what waits for the device cannot be captured
            in_graph = str(error).partition("\n")[0]
        rows.append(point | {"ms": milliseconds(call), "graph_ms": in_graph, "copy_ms": copy})

    for name, layer in layers.items():
        for operation in ("forward", "forward_backward", "inverse"):
            if name == "emerging" and operation != "inverse":
                continue
            call = prepare(layer, batch, operation, dtype=torch.float32, device=x.device)
            add(name, operation, call)
    butterfly = layers["butterfly"]
    assert isinstance(butterfly, Butterfly)
    if batch * butterfly.dim <= 2**25:
        add("butterfly, level by level", "forward", yardstick(butterfly, x))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("reports/runtime-h200"))
    out = parser.parse_args().out
    if not torch.cuda.is_available():
        print("there is no CUDA device here", file=sys.stderr)
        return 2
    out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    built = kernels.load("cuda")
    print(f"{kernels.backend('cuda')}, {time.monotonic() - begin:.0f} s", flush=True)
    if not built:
        return 1
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "tests/layers"]
    tested = subprocess.run(tests, check=False).returncode
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows = []
    for shape in SHAPES:
        for batch in BATCHES:
            if batch * shape[0] * shape[1] * shape[2] <= ENTRIES:
                rows += rows_of(shape, batch)
                print(rows[-1], flush=True)
    with (out / "kernels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (out / "device.json").write_text(json.dumps(environment("cuda"), indent=1), encoding="utf-8")
    suite = ["suites/runtime.yaml", "--profile", "quick", "--device", "cuda", "--out", str(out)]
    reported = subprocess.run([sys.executable, "-m", "harness", "run", *suite], check=False).returncode
    print(f"{time.monotonic() - begin:.0f} s in all")
    return tested or reported


if __name__ == "__main__":
    sys.exit(main())
