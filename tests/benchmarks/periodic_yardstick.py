"""Compare the periodic layer with its plain formulas: `python tests/benchmarks/periodic_yardstick.py [--threads 2]`.

The yardstick multiplies the Fourier transforms of the events and of the kernel, one einsum over the channels, and sums
log|det| over all frequencies. Layer and yardstick take turns of some milliseconds in one process that keeps freed
memory, as trials do; the figures are medians over the rounds of each turn's median, in float32, and of their ratios.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from emerging_yardstick import compare, ratio  # the script's own folder
from torch import Tensor

from harness.core.flags import keep_freed_memory
from layers.kernels import load as kernels
from layers.periodic import Periodic

SHAPES = [(3, 8, 8), (3, 32, 32), (3, 64, 64), (12, 16, 16), (48, 8, 8)]


def plain(layer: Periodic, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return y and the log-det of images by the formulas in the layer's docstring."""
    if layer.bias is None:
        raise ValueError("the yardstick wants a bias")
    size, (height, width) = layer.kernel_size, layer.shape[1:]
    kernel = F.pad(layer.weight, [0, width - size, 0, height - size]).roll([-layer.centre] * 2, (2, 3))
    spectrum = torch.fft.rfft2(kernel).conj()
    y = torch.fft.irfft2(torch.einsum("oihw,nihw->nohw", spectrum, torch.fft.rfft2(x)), s=(height, width))
    twice = torch.full((width // 2 + 1,), 2.0)
    twice[0] = 1
    if width % 2 == 0:
        twice[-1] = 1
    logs = torch.linalg.slogdet(spectrum.permute(2, 3, 0, 1)).logabsdet
    return y + layer.bias.reshape(-1, 1, 1), (logs * twice).sum()


def main() -> None:
    """Print a row for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    print(f"batch {args.batch}, {args.threads} threads, torch {torch.__version__}, {kernels.backend()}")
    print("times in ms; x is how many times faster the layer is than the yardstick")
    for shape in SHAPES:
        torch.manual_seed(0)
        layer = Periodic(shape)
        x = torch.randn(args.batch, *shape, requires_grad=True)
        weights = torch.randn_like(x)
        ways: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
            "layer": lambda layer=layer, x=x: layer(x),
            "yardstick": lambda layer=layer, x=x: plain(layer, x),
        }
        leaves = [x, *layer.parameters()]
        calls: dict[str, Callable[[], object]] = {}
        for name, way in ways.items():
            calls[f"{name} forward"] = torch.no_grad()(way)
            calls[f"{name} both"] = lambda way=way, leaves=leaves, weights=weights: torch.autograd.grad(
                way(), leaves, [weights, weights.new_ones(())]
            )
        for found, reference in zip(ways["layer"](), ways["yardstick"](), strict=True):
            torch.testing.assert_close(found, reference, rtol=1e-4, atol=1e-3)
        spent = compare(calls, args.rounds)
        medians = "  ".join(f"{name} {statistics.median(times):8.3f}" for name, times in spent.items())
        print(
            f"{'x'.join(map(str, shape)):>9}  {medians}"
            f"  x forward {ratio(spent['yardstick forward'], spent['layer forward']):.2f}"
            f"  forward + backward {ratio(spent['yardstick both'], spent['layer both']):.2f}"
        )


if __name__ == "__main__":
    main()
