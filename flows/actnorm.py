"""Per-channel affine normalisation, initialised on data (Kingma & Dhariwal 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flows.affine import affine_channels, per_channel


@torch.no_grad()
def standardisation(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return per-channel mean and 1 / standard deviation of x, shape (N, C, *spatial); both of shape (C,).

    A channel that is constant up to rounding has no scale and gets 1.
    """
    std, mean = torch.std_mean(x, dim=(0, *range(2, x.ndim)), correction=0)
    constant = std <= 1e-6 * mean.abs() + torch.finfo(x.dtype).tiny
    return mean, torch.where(constant, torch.ones_like(std), 1 / std)


class ActNorm(nn.Module):
    """y = exp(log_scale) * (x + shift), one scale and one shift per channel: 2C parameters.

    log|det| = n * sum(log_scale) for n spatial positions, shape (). The identity until `initialise` is called;
    `forward` never initialises from its data, and the buffer `initialised` is saved with the state.
    """

    initialised: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(channels))
        self.log_scale = nn.Parameter(torch.zeros(channels))
        self.register_buffer("initialised", torch.tensor(False))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (N, C, *spatial) to the same shape; return y and log|det| of shape ()."""
        return affine_channels(x, self.shift, self.log_scale)

    def inverse(self, y: Tensor) -> Tensor:
        """Return x = exp(-log_scale) * y - shift."""
        return y * per_channel(-self.log_scale, y).exp() - per_channel(self.shift, y)

    @torch.no_grad()
    def initialise(self, x: Tensor) -> None:
        """Give every channel of `forward(x)` zero mean and unit variance (a constant channel: zero mean only)."""
        mean, scale = standardisation(x)
        self.shift.copy_(-mean)
        self.log_scale.copy_(scale.log())
        self.initialised.fill_(True)
