"""A matrix that makes channels uncorrelated and of variance 1, from few observations of them."""

from __future__ import annotations

import torch
from torch import Tensor

FLOOR = 1e-6
"""The least eigenvalue of the correlation matrix in use, as a part of the largest."""


def whitening_matrix(x: Tensor) -> Tensor:
    """Return W = P^(-1/2) diag(std)^-1 with P the correlation matrix of the channels ("ZCA-cor"), float64, (C, C).

    So W, unlike that of a covariance matrix, does not depend on the units of the channels. A minibatch may have fewer
    observations than channels, so P is shrunk towards the identity by the share that Ledoit and Wolf (2004) estimate,

        P = (1 - r) S + r I,    r = min(1, (mean of |z z^T - S|^2 over the N observations z) / N / |S - I|^2),

    with S the sample's correlation matrix, and its eigenvalues are at least `FLOOR` times the largest one. A constant
    channel keeps its scale.

    Args:
        x: events, (N, C, *spatial); every position is an observation, and they count as independent.

    Source: Kessy, Lewin and Strimmer (2018), "Optimal whitening and decorrelation".
    """
    rows = x.detach().double().flatten(2).transpose(1, 2).flatten(0, 1)
    std, mean = torch.std_mean(rows, 0, correction=0)
    scale = torch.where(std > 1e-6 * mean.abs() + torch.finfo(x.dtype).tiny, std, 1.0)
    z = (rows - mean) / scale
    one = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    sample = z.T @ z / len(z)
    # The mean of |z z^T - S|^2 is that of |z|^4 less |S|^2.
    noise = (z.square().sum(1).square().mean() - sample.square().sum()) / len(z)
    sample.fill_diagonal_(1)  # of a constant channel it is 0
    distance = (sample - one).square().sum()
    share = (noise / distance.clamp(min=torch.finfo(z.dtype).tiny)).clamp(0, 1)
    values, vectors = torch.linalg.eigh((1 - share) * sample + share * one)
    values = values.clamp(min=FLOOR * float(values[-1]))
    return (vectors * values.rsqrt()) @ vectors.T / scale
