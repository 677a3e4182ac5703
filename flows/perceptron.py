"""A perceptron of three layers over many points, laid out for a processor's caches.

The couplings of sequences are such perceptrons, and most of what a training step takes (docs/throughput.md). What
counts for their time, besides the arithmetic:

- Hidden values of all points at once do not fit any cache. The points are taken in parts of `PART` hidden values;
  autograd goes through them in the opposite order, each part in the cache again.
- Matrix libraries are several times slower where the result of a product has few columns than where it has few rows.
  Points are the columns of what comes in and goes out, and the rows of what is hidden, so that no product is of the
  slow kind, backward neither.
- torch's tanh costs about four times its sigmoid on a CPU, and tanh(z) = 2 sigmoid(2 z) - 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

PART = 2**19  # 2 MB in float32; from 2^17 to 2^20 all is alike (AMD EPYC, 1 MB of second-level cache per core)


class Perceptron(nn.Sequential):
    """Linear, activation, linear, activation, linear, over the columns of a matrix (inputs, points).

    Orthogonal weights and zero biases at first.

    Args:
        inputs, outputs: numbers per point.
        width: hidden numbers per point.
        activation: nn.Tanh or nn.ReLU.
    """

    def __init__(self, inputs: int, outputs: int, width: int, activation: type[nn.Tanh] | type[nn.ReLU]) -> None:
        linears = [nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, outputs)]
        for linear in linears:
            nn.init.orthogonal_(linear.weight)
            nn.init.zeros_(linear.bias)
        super().__init__(linears[0], activation(), linears[1], activation(), linears[2])
        self.width = width

    def forward(self, columns: Tensor) -> Tensor:
        """(inputs, points) -> (outputs, points)."""
        first, second, last = (layer for layer in self if isinstance(layer, nn.Linear))
        bounded = isinstance(self[1], nn.Tanh)
        # Doubling is exact, and free while it is done to the weights.
        doubled = [2 * value if bounded else value for layer in (first, second) for value in (layer.weight, layer.bias)]
        weight1, bias1, weight2, bias2 = doubled
        activation = _tanh_of_half if bounded else torch.relu
        # In one piece, because its product with the gradient is of the slow kind otherwise.
        weight1 = weight1.T.contiguous()
        points = columns.shape[1]
        part = max(1, PART // self.width) if columns.is_cpu else max(1, points)
        outputs = []
        for some in columns.split(part, 1):
            hidden = activation(torch.addmm(bias1, some.T, weight1))
            hidden = activation(torch.addmm(bias2, hidden, weight2.T))
            outputs.append(torch.addmm(last.bias[:, None], last.weight, hidden.T))
        return torch.cat(outputs, 1)


def _tanh_of_half(z: Tensor) -> Tensor:
    return torch.rsub(torch.sigmoid(z), -1, alpha=-2)  # 2 sigmoid(z) - 1 in one pass
