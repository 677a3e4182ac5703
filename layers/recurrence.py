"""A linear recurrence, once forward and once backward in time: memory of any length at constant cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layers.base import InvertibleLinear, UnsupportedShape, check_whole
from layers.chain import Chain
from layers.kernels import load as kernels
from layers.linalg.plu import log_abs_det

LARGEST_POLE = 1 - 2**-8  # of A
LARGEST_NORM = 1 - 2**-9  # of A - B K, in the 2-norm; above LARGEST_POLE, so that B K has a share in every case
LONGEST_INITIAL = 64  # positions after which the slowest initial state has decayed to about 1 / e
# Entries of a block. Larger ones take more arithmetic, smaller ones more steps.
BLOCK_ENTRIES = 128


class Recurrence(Chain, name="recurrence"):
    r"""Two linear recurrences with a state h of r entries, the first forward in time, the second backward; no bias.

    The one forward in time is

        h_t = A h_{t-1} + B x_t,    y_t = D x_t + C h_{t-1},    C = D K,    h_0 = 0,

    with A = diag(a) (r x r), B (r x c), K (c x r) and D (c x c). The other is the same with other weights, from the
    last position to the first. Every output depends on all positions, and the parameters do not grow with the reach.

    Determinant: each matrix is block-triangular in time with D on its diagonal, so
    log|det W| = n (log|det D_1| + log|det D_2|).
    Inverse: h_t = (A - B K) h_{t-1} + B D^-1 y_t and x_t = D^-1 y_t - K h_{t-1}, the same scan.
    Bounds: |a| = LARGEST_POLE tanh(.), and B is multiplied by the largest s <= 1 for which the convexity of the 2-norm
    shows ||A - s B K|| <= LARGEST_NORM. So the radius of both recurrences is below 1 whatever the weights: memories
    fade, over at most some 500 positions, and the condition of W has a bound for all n. The bound of the norm is
    sufficient: no inverse of radius below 1 is reached whose norm in this basis is larger.
    Computed by `invertbench::recurrence` on a CPU in 32 or 64 bits, else as a scan over blocks of time: one product for
    all blocks, and for the states at their starts the same recurrence over the blocks, with a power of A.

    Family: recurrences
    Cost:
        forward: 2 n (c + r)^2 multiply-adds; without kernels 2 n (k c^2 + 2 c r + r^2), in blocks of k positions
        inverse: as many, and 2 c^3 once
        log-det: 2 c^3, once
    Singular: where a D is.
    Shapes: every (C, L)
    Source: of this project; a search found no flow that has it. The inverse of a linear system in state space is
        standard (SLICOT AB07ND); BiLipREN (arXiv 2505.03069, 2025) bounds a nonlinear state-space model and its inverse

    Initially D = I and K = N(0, 0.02^2). The states fade over 1 to LONGEST_INITIAL positions, evenly in the logarithm,
    with rows of B that give each unit variance on white noise. Parameters: 2 (c^2 + 2 c r + r).

    Args:
        states: r, the entries of the state of each direction.
    """

    def __init__(self, shape: tuple[int, ...], *, states: int = 8) -> None:
        check_whole("recurrence", "states", states)
        super().__init__(shape, (OneWay(shape, states, backwards) for backwards in (False, True)))
        self.states = states


class OneWay(InvertibleLinear):
    """The recurrence of one direction of time; see `Recurrence`."""

    def __init__(self, shape: tuple[int, ...], states: int, backwards: bool) -> None:
        super().__init__(shape)
        if len(self.shape) != 2:
            raise UnsupportedShape(
                f"recurrence: events {self.shape} have two axes of positions, and time is one; use sequences "
                "(channels, length), or emerging or periodic for images"
            )
        self.backwards = backwards
        decay = torch.exp(-1 / torch.logspace(0, 1, states, base=LONGEST_INITIAL))
        scale = (1 - decay.square()).div(self.channels).sqrt()
        self.poles = nn.Parameter(torch.atanh(decay / LARGEST_POLE))
        self.inputs = nn.Parameter(scale[:, None] * torch.randn(states, self.channels))  # B
        self.outputs = nn.Parameter(0.02 * torch.randn(self.channels, states))  # K
        self.weight = nn.Parameter(torch.eye(self.channels))  # D

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return y, and n log|det D|."""
        transition, inputs = self._bounded()
        return self._run(transition, inputs, self.weight @ self.outputs, self.weight, x), self.log_det()

    def log_det(self) -> Tensor:
        """Return n log|det D|."""
        return log_abs_det(self.weight, self.positions)

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Invert D once; the callable runs the inverse recurrence."""
        transition, inputs = self._bounded()
        inverse, outputs = torch.linalg.inv_ex(self.weight)[0], self.outputs.clone()
        return partial(self._run, transition - inputs @ outputs, inputs @ inverse, -outputs, inverse)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return W, one position after the other from the definition."""
        transition, inputs = self._bounded()
        events = torch.eye(self.dim, dtype=inputs.dtype, device=inputs.device).view(self.dim, *self.shape)
        state, result = inputs.new_zeros(self.dim, len(inputs)), torch.empty_like(events)
        for position in reversed(range(self.positions)) if self.backwards else range(self.positions):
            x = events[..., position]
            result[..., position] = (x + state @ self.outputs.T) @ self.weight.T
            state = state @ transition.T + x @ inputs.T
        return result.flatten(1).T

    def _bounded(self) -> tuple[Tensor, Tensor]:
        """Return A, and the B with ||A - B K|| <= LARGEST_NORM."""
        poles = LARGEST_POLE * torch.tanh(self.poles)
        transition, largest = poles.diag(), poles.abs().amax()
        # ||A - s B K|| <= (1 - s) ||A|| + s ||A - B K||, for 0 <= s <= 1.
        norm = torch.linalg.svdvals(transition - self.inputs @ self.outputs)[0]
        room = LARGEST_NORM - largest
        return transition, self.inputs * (room / torch.maximum(norm - largest, room))

    def _run(self, transition: Tensor, inputs: Tensor, outputs: Tensor, direct: Tensor, x: Tensor) -> Tensor:
        """Run the recurrence of A, B, C and D in this direction of time."""
        system = torch.cat([torch.cat([transition, inputs], 1), torch.cat([outputs, direct], 1)])
        if kernels.serve_on_processor(x, system):
            y: Tensor = torch.ops.invertbench.recurrence(x, system, len(transition), self.backwards)[0]
            return y
        return scan(x, system, len(transition), self.backwards)


def scan(x: Tensor, system: Tensor, states: int, backwards: bool) -> Tensor:
    """Run (h_t, y_t) = system (h_{t-1}, x_t) over the positions of sequences from h = 0 on, in plain PyTorch.

    Args:
        x: (N, C, T).
        system: (A B; C D), (states + outputs, states + C).
        states: the number of entries of h.
        backwards: from the last position to the first.

    Returns:
        y, (N, outputs, T).
    """
    transition, inputs = system[:states].split([states, x.shape[1]], 1)
    outputs, direct = system[states:].split([states, x.shape[1]], 1)
    (rows, columns), length = direct.shape, x.shape[2]
    size = min(length, max(2, BLOCK_ENTRIES // max(rows, columns)))
    blocks = -(-length // size)
    powers = _powers(transition, size)
    # How far each position of a block is from the start of it, in the direction of time.
    place = torch.arange(size, device=x.device)
    place = place.flip(0) if backwards else place
    # Response to an input so many positions before; the last entry is that to later inputs, none.
    responses = torch.cat([direct[None], outputs @ powers[: size - 1] @ inputs, torch.zeros_like(direct)[None]])
    lags = (place[:, None] - place).clamp(min=-1)
    within = responses[lags].permute(2, 0, 3, 1).reshape(rows * size, columns * size)
    padding = blocks * size - length
    padded = F.pad(x, (padding, 0) if backwards else (0, padding)) if padding else x
    parts = padded.unflatten(2, (blocks, size)).transpose(1, 2).flatten(2)
    y = parts @ within.T
    if blocks > 1:
        to_end = (powers[size - 1 - place] @ inputs).permute(1, 2, 0).flatten(1)
        from_start = (outputs @ powers[place]).permute(1, 0, 2).flatten(0, 1)
        identity = torch.eye(states, dtype=x.dtype, device=x.device)
        # Over the blocks: each state from the one before and the inputs between, with itself as the output.
        between = torch.cat([torch.cat([powers[size], identity], 1), F.pad(identity, (0, states))])
        starts = scan((parts @ to_end.T).mT, between, states, backwards)
        y = y + starts.mT @ from_start.T
    y = y.unflatten(2, (rows, size)).transpose(1, 2).flatten(2)
    return y[..., padding:] if backwards else y[..., :length]


def _powers(matrix: Tensor, highest: int) -> Tensor:
    """Return the powers 0 to `highest` of an (r, r) matrix, (highest + 1, r, r), by doubling."""
    powers, factor = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)[None], matrix
    while len(powers) <= highest:
        powers, factor = torch.cat([powers, powers @ factor]), factor @ factor
    return powers[: highest + 1]
