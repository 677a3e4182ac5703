"""Woodbury transformations: low-rank updates of the identity along channels and along positions or axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from layers.base import InvertibleLinear, check_choice, check_whole
from layers.chain import Chain
from layers.linalg.plu import log_abs_det


class Woodbury(Chain, name="woodbury"):
    r"""Woodbury transformation of an event as a matrix X of shape (c, n), n positions; no bias.

        X <- (I + U_c V_c) X,    X <- X (I + U_s V_s)

    with U_c (c, d_c), V_c (d_c, c), U_s (n, d_s), V_s (d_s, n), where d_c is `rank_channels` and d_s is
    `rank_space`: 2 c d_c + 2 n d_s parameters, drawn from N(0, 0.01^2). A rank may exceed c or n.

    ``memory_efficient=True`` has an update of rank d_s for each spatial axis in place of the one over positions:
    for each channel, as a matrix X of shape (h, w),

        X <- X (I + U_w V_w),    then X <- (I + U_h V_h) X,

    so 2 c d_c + 2 (h + w) d_s parameters. A sequence has one axis, and its layer is the ordinary one.

    Determinant (the determinant lemma, on d x d matrices, or on the updated axis where that is smaller):
        log|det| = n log|det(I + V_c U_c)| + c log|det(I + V_s U_s)|; memory-efficient
        n log|det(I + V_c U_c)| + c h log|det(I + V_w U_w)| + c w log|det(I + V_h U_h)|.
    Inverse (the Woodbury identity, solving d x d systems only):
        (I + U V)^-1 = I - U (I + V U)^-1 V, again a low-rank update; the last update is undone first.
    Family: low-rank updates
    Cost:
        forward: 2 D (d_c + d_s) multiply-adds per event (memory-efficient 2 D (d_c + 2 d_s))
        inverse: the same, after O(d^3 + d^2 (c + n)) once per call
        log-det: O(d^3 + d^2 (c + n))
    Singular cases:
        -1 an eigenvalue of V U: log|det| = -inf, and the inverse raises torch.linalg.LinAlgError.

    Shapes: every (C, L) and (C, H, W)
    Source: Woodbury transformations (Lu and Huang, NeurIPS 2020), ME-Woodbury included
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        rank_channels: int = 8,
        rank_space: int = 4,
        memory_efficient: bool = False,
    ) -> None:
        for name, rank in (("rank_channels", rank_channels), ("rank_space", rank_space)):
            check_whole("woodbury", name, rank)
        check_choice("woodbury", "memory_efficient", memory_efficient, (True, False))
        sizes = {"channels": rank_channels}
        sizes |= dict.fromkeys(("width", "height") if memory_efficient and len(shape) == 3 else ("space",), rank_space)
        super().__init__(shape, (LowRankUpdate(shape, axis, rank) for axis, rank in sizes.items()))
        self.memory_efficient = memory_efficient


class LowRankUpdate(InvertibleLinear):
    """I + U V along the channels, the positions ("space") or one axis ("height", "width") of an event.

    On the channels and the height the update is applied from the left, else from the right: X <- X (I + U V). U has
    `rank` columns, V as many rows.
    """

    def __init__(self, shape: tuple[int, ...], axis: str, rank: int) -> None:
        super().__init__(shape)
        self.axis, self.rank = axis, rank
        places = {"channels": 0, "height": 1, "width": 2}
        size = self.positions if axis == "space" else self.shape[places[axis]]
        self.u = nn.Parameter(0.01 * torch.randn(size, rank))
        self.v = nn.Parameter(0.01 * torch.randn(rank, size))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the update; the log-det is that of one axis, times the number of vectors along it."""
        return self._update(self.u, self.v, x), self.log_det()

    def log_det(self) -> Tensor:
        """Return log|det(I + U V)| on the smaller of its two sides, times the number of vectors along the axis."""
        smaller = self.u @ self.v if len(self.u) <= self.rank else self.v @ self.u
        return log_abs_det(_identity_plus(smaller), self.dim // len(self.u))

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Solve the small system once; the callable applies the inverse update."""
        return partial(self._update, self.u.clone(), -torch.linalg.solve(_identity_plus(self.v @ self.u), self.v))

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return the Kronecker product of the axis's matrix with identities; X (I + U V) is transposed."""
        matrix = _identity_plus(self.u @ self.v)
        before = {"channels": 1, "height": self.channels}.get(self.axis, self.dim // len(matrix))
        matrix = torch.kron(torch.eye(before).to(matrix), matrix if self.from_left else matrix.T.contiguous())
        return torch.kron(matrix, torch.eye(self.dim // len(matrix)).to(matrix))

    @property
    def from_left(self) -> bool:
        """Return True on the channels and the height."""
        return self.axis in ("channels", "height")

    def _update(self, u: Tensor, v: Tensor, x: Tensor) -> Tensor:
        """Apply I + U V to a batch (N, C, *spatial)."""
        if not self.from_left:
            return _from_right(x.reshape(-1, len(u)), u, v).view(x.shape)
        matrices = x.flatten(2) if self.axis == "channels" else x.flatten(0, 1)
        return _from_left(u, v, matrices).view(x.shape)


def _identity_plus(matrix: Tensor) -> Tensor:
    return matrix + torch.eye(matrix.shape[0], dtype=matrix.dtype, device=matrix.device)


def _from_left(u: Tensor, v: Tensor, x: Tensor) -> Tensor:
    """Return (I + U V) X for a batch X (B, size, m)."""
    batch = x.shape[0]
    size, rank = u.shape
    if size <= 3 * rank:  # one product with a square matrix is faster than two with U and V
        return torch.bmm(_identity_plus(u @ v).expand(batch, -1, -1), x)
    return torch.baddbmm(x, u.expand(batch, -1, -1), torch.bmm(v.expand(batch, -1, -1), x))


def _from_right(rows: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Return X (I + U V) for rows X (M, size)."""
    # (U^T X^T)^T: matrix libraries are several times slower at X U, whose rows are a few numbers long. The copy of U^T
    # does the same for the gradient of U.
    return torch.addmm(rows, (u.T.contiguous() @ rows.T).T, v)
