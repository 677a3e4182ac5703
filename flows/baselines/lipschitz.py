"""Convolutions of bounded operator norm, and activations that preserve the bound: the parts of a contraction."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TRAINING_ITERATIONS = 2  # of the power iteration per pass: weights change little between steps
EVALUATION_ITERATIONS = 100
FIRST_ITERATIONS = 50


class SpectralConvolution(nn.Module):
    """A zero-padded "same" convolution scaled down to an operator norm of at most `limit` (Gouk et al. 2018).

    weight = W / max(1, sigma / limit), sigma = u^T W v with u and v from power iteration on the convolution itself, on
    events of the size that it sees (for a 1x1 it is the norm of its matrix). sigma is a lower bound of the norm, which
    u and v, kept between passes, bring close: in train() two iterations per pass update them, in eval() 100 start from
    them without changing them, so evaluation never depends on earlier evaluations, and is correct for averaged weights
    too. The audit checks that the bound holds.

    Args:
        inputs: number of input channels.
        outputs: number of output channels.
        kernel: side of the square kernel, odd.
        spatial: (H, W) of the events.
        limit: limit of the operator norm, in (0, 1).
    """

    u: Tensor
    v: Tensor

    def __init__(self, inputs: int, outputs: int, kernel: int, spatial: tuple[int, ...], limit: float) -> None:
        super().__init__()
        if not 0 < limit < 1:
            raise ValueError(f"lipschitz = {limit}: the norm of each convolution must be between 0 and 1")
        reference = nn.Conv2d(inputs, outputs, kernel)
        self.weight = nn.Parameter(reference.weight.detach().clone())
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.limit = limit
        self.shape = (inputs, *(spatial if kernel > 1 else (1, 1)))
        self.register_buffer("v", _unit(torch.randn(1, *self.shape)))
        self.register_buffer("u", _unit(torch.randn(1, outputs, *self.shape[1:])))
        with torch.no_grad():
            self._remember(*self._iterate(FIRST_ITERATIONS))

    def normalised(self) -> Tensor:
        """Return the weight as applied, (outputs, inputs, kernel, kernel), differentiable in `weight`."""
        with torch.no_grad():
            u, v = self._iterate(TRAINING_ITERATIONS if self.training else EVALUATION_ITERATIONS)
            if self.training:
                self._remember(u, v)
        norm = (u * self.convolve(v, self.weight)).sum()
        return self.weight / (norm / self.limit).clamp(min=1.0)

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H, W)."""
        return F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)

    def _iterate(self, iterations: int) -> tuple[Tensor, Tensor]:
        u, v = self.u, self.v
        padding = self.weight.shape[-1] // 2
        for _ in range(iterations):
            v = _unit(F.conv_transpose2d(u, self.weight, padding=padding))
            u = _unit(self.convolve(v, self.weight))
        return u, v

    def _remember(self, u: Tensor, v: Tensor) -> None:
        self.u.copy_(u)
        self.v.copy_(v)

    def extra_repr(self) -> str:
        """Return the shapes and the limit, for repr()."""
        return f"{tuple(self.weight.shape)}, on {self.shape}, limit={self.limit}"


class LipSwish(nn.Module):
    """x * sigmoid(softplus(beta) x) / 1.1 (Chen et al. 2019): smooth, of slope at most 1.0998 / 1.1 for any beta."""

    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(math.log(math.expm1(1.0))))  # softplus(beta) = 1

    def forward(self, x: Tensor) -> Tensor:
        """Apply the activation to each entry."""
        return x * torch.sigmoid(F.softplus(self.beta) * x) / 1.1


class CLipSwish(LipSwish):
    """[LipSwish(x), LipSwish(-x)] / 1.004, twice the channels (Perugachi-Diaz et al. 2021).

    With s the slope of swish, s(x) + s(-x) = 1 and s <= 1.0998, so the norm of the two slopes is at most
    sqrt(1.0998^2 + 0.0998^2) / 1.1 = 1.0039: the map's Lipschitz constant is below 1.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, *spatial) to (N, 2C, *spatial)."""
        return torch.cat([super().forward(x), super().forward(-x)], dim=1) / 1.004


def _unit(x: Tensor) -> Tensor:
    """Return x scaled to norm 1; zero stays zero."""
    return x / torch.linalg.vector_norm(x).clamp(min=torch.finfo(x.dtype).tiny)
