"""Woodbury transformations: low-rank updates of the identity along channels and along positions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear


class Woodbury(InvertibleLinear, name="woodbury"):
    r"""Woodbury transformation of an event as a matrix X of shape (c, n), n positions; no bias.

        X <- (I + U_c V_c) X,    X <- X (I + U_s V_s)

    with U_c (c, d_c), V_c (d_c, c), U_s (n, d_s), V_s (d_s, n), where d_c is `rank_channels` and d_s is
    `rank_space`: 2 c d_c + 2 n d_s parameters, drawn from N(0, 0.01^2). A rank may exceed c or n.

    Determinant (the determinant lemma, on d x d matrices, or c x c and n x n where those are smaller):
        log|det| = n log|det(I + V_c U_c)| + c log|det(I + V_s U_s)|.
    Inverse (the Woodbury identity, solving d x d systems only):
        (I + U V)^-1 = I - U (I + V U)^-1 V, again a low-rank update.
    Cost:
        2 D (d_c + d_s) multiply-adds per event, forward and inverse, after O(d^3 + d^2 (c + n)) once per call.
    Singular cases:
        -1 an eigenvalue of V U: log|det| = -inf, and the inverse raises torch.linalg.LinAlgError.

    Shapes: events (C, L) or (C, H, W), every size.

    Source: Woodbury transformations (Lu & Huang, 2020).
    """

    def __init__(self, shape: tuple[int, ...], *, rank_channels: int = 8, rank_space: int = 4) -> None:
        super().__init__(shape)
        for name, rank in (("rank_channels", rank_channels), ("rank_space", rank_space)):
            if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
                raise ValueError(f"woodbury: {name} = {rank!r} is not a rank; use a whole number from 1 up")
        self.u_channels = nn.Parameter(0.01 * torch.randn(self.channels, rank_channels))
        self.v_channels = nn.Parameter(0.01 * torch.randn(rank_channels, self.channels))
        self.u_space = nn.Parameter(0.01 * torch.randn(self.positions, rank_space))
        self.v_space = nn.Parameter(0.01 * torch.randn(rank_space, self.positions))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply both updates, channels first; see the class for the log-det."""
        self.check_event(x)
        y = _from_left(self.u_channels, self.v_channels, x.flatten(2))
        y = _from_right(y, self.u_space, self.v_space)
        log_det = self.positions * _log_det(self.u_channels, self.v_channels)
        log_det = log_det + self.channels * _log_det(self.u_space, self.v_space)
        return y.view(x.shape), log_det

    def inverse(self, y: Tensor) -> Tensor:
        """Undo the spatial update, then that of the channels."""
        self.check_event(y)
        v_channels = _inverse_v(self.u_channels, self.v_channels)
        v_space = _inverse_v(self.u_space, self.v_space)
        x = _from_right(y.flatten(2), self.u_space, v_space)
        return _from_left(self.u_channels, v_channels, x).view(y.shape)

    @torch.no_grad()
    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Solve the two small systems once; the callable applies the two inverse updates."""
        u_channels, u_space = self.u_channels.clone(), self.u_space.clone()
        v_channels = _inverse_v(u_channels, self.v_channels)
        v_space = _inverse_v(u_space, self.v_space)

        @torch.no_grad()
        def invert(y: Tensor) -> Tensor:
            self.check_event(y)
            x = _from_right(y.flatten(2), u_space, v_space)
            return _from_left(u_channels, v_channels, x).view(y.shape)

        return invert

    @torch.no_grad()
    def dense(self) -> Tensor:
        """(I + U_c V_c) (x) (I + U_s V_s)^T, as X is flattened row by row."""
        left = _identity_plus(self.u_channels @ self.v_channels)
        right = _identity_plus(self.u_space @ self.v_space)
        return torch.kron(left, right.T.contiguous())

    def extra_repr(self) -> str:
        """Shape and ranks."""
        ranks = f"rank_channels={self.u_channels.shape[1]}, rank_space={self.u_space.shape[1]}"
        return f"{super().extra_repr()}, {ranks}"


def _identity_plus(matrix: Tensor) -> Tensor:
    return matrix + torch.eye(matrix.shape[0], dtype=matrix.dtype, device=matrix.device)


def _log_det(u: Tensor, v: Tensor) -> Tensor:
    """log|det(I + U V)| on the smaller of its two sides."""
    size, rank = u.shape
    return torch.linalg.slogdet(_identity_plus(u @ v if size <= rank else v @ u))[1]


def _inverse_v(u: Tensor, v: Tensor) -> Tensor:
    """V' with (I + U V)^-1 = I + U V'."""
    return -torch.linalg.solve(_identity_plus(v @ u), v)


def _from_left(u: Tensor, v: Tensor, x: Tensor) -> Tensor:
    """(I + U V) X for a batch X (N, c, n)."""
    batch = x.shape[0]
    size, rank = u.shape
    if size <= 2 * rank:  # one c x c product is less work than two of c x d
        return torch.bmm(_identity_plus(u @ v).expand(batch, -1, -1), x)
    return torch.baddbmm(x, u.expand(batch, -1, -1), torch.bmm(v.expand(batch, -1, -1), x))


def _from_right(x: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """X (I + U V) for a batch X (N, c, n)."""
    rows = x.flatten(0, 1)
    return torch.addmm(rows, rows @ u, v).view(x.shape)
