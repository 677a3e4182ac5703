"""The coupling network of Jet: a small transformer whose tokens are the positions of the kept channels."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from flows.affine import Gate, doubled_gate
from flows.conditioners import Conditioner

BLOCKS = 2  # of the network; Jet's couplings have one to a few
HEADS = 4  # at most; a width that four does not divide has the largest number that does
Past = tuple[Tensor, Tensor]
"""Keys and values of the positions so far, each (N, heads, positions, width / heads)."""


class AttentionConditioner(Conditioner):
    """The coupling of Jet (Kolesnikov et al., TMLR 2025): y = (x + shift) * gate(s), by attention between positions.

    A linear map of each position (kept -> width) plus a learned embedding of it, `BLOCKS` pre-norm transformer blocks
    of `HEADS` heads, layer normalisation, and a linear map, initially zero (-> 2 * moved). It sees every position
    from every other one at a cost quadratic in their number. The published gate is 2 sigmoid(s), so that the coupling
    starts as the identity. Weights are Xavier-uniform, biases zero, the embedding N(0, 1 / width).
    """

    def __init__(self, kept: int, moved: int, width: int, positions: int, gate: Gate = doubled_gate) -> None:
        super().__init__()
        self.gate = gate
        self.first = nn.Linear(kept, width)
        self.position = nn.Parameter(torch.randn(positions, width) / math.sqrt(width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 2 * moved)
        draw_weights(self, self.last)

    def forward(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Return log gate(s), and shift * gate(s)."""
        tokens = self.first(kept.flatten(2).mT) + self.position
        head = self.last(self.norm(self.blocks(tokens))).mT.unflatten(2, kept.shape[2:])
        shift, s = head.chunk(2, dim=1)
        log_scale = self.gate(s)
        return log_scale, shift * log_scale.exp()


def draw_weights(network: nn.Module, last: nn.Linear) -> None:
    """Draw Xavier-uniform weights of all linear maps, with biases of zero; those of the last map are zero."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    nn.init.zeros_(last.weight)


class Block(nn.Module):
    """Pre-norm transformer block: x + attention(norm(x)), then x + perceptron(norm(x)), hidden units 4 * width.

    Args:
        width: of a position.
        causal: whether a position attends to itself and those before it alone.
    """

    def __init__(self, width: int, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.heads = math.gcd(width, HEADS)
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mixed = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, positions, width) to the same shape."""
        return self._attend(x, *self._projections(x))

    def step(self, x: Tensor, past: Past | None) -> tuple[Tensor, Past]:
        """Map one position (N, 1, width) that attends to itself and those before it.

        Args:
            x: what arrives at the position.
            past: keys and values of the positions before it; None for the first.

        Returns:
            the output as x, and keys and values up to this position.
        """
        queries, keys, values = self._projections(x)
        if past is not None:
            keys, values = torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)
        return self._attend(x, queries, keys, values), (keys, values)

    def _projections(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values, each (N, heads, positions, width / heads)."""
        projected = self.queries_keys_values(self.attention_norm(x))
        return projected.unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()

    def _attend(self, x: Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the output at the positions of the queries, which are the last of those of the keys."""
        batch, heads, moved, size = queries.shape
        positions = keys.shape[2]
        mask = queries.new_zeros(())
        if self.causal:
            mask = queries.new_full((positions, moved), -math.inf).tril(moved - positions - 1)
        queries, keys, values = queries.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1)
        # Not PyTorch's fused kernels, which are not differentiable twice. `baddbmm` scales and masks the products in
        # one pass. Keys lie before queries: softmax over a last axis of fewer than 16 entries is slow on a CPU.
        products = torch.baddbmm(mask, keys, queries.mT, alpha=1 / math.sqrt(size))
        attended = torch.softmax(products, dim=1).mT @ values
        x = x + self.mixed(attended.unflatten(0, (batch, heads)).transpose(1, 2).flatten(2))
        return x + self.perceptron(x)
