"""y = x + g(x) with Lip(g) < 1: an estimate of its log-determinant, and its inverse by fixed-point iteration.

normflows has such a block too, with which the tests compare these estimates. It is not used here for three reasons. It
draws from NumPy's global generator, once for a whole batch: a run resumed from a checkpoint would not give
the same bits, and errors of events would not be independent. Its evaluation uses the roulette even where training
truncates the series. And its inverse ends once a step is below 3e-3, or silently after 1000 steps.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layers.linalg.precision import full_precision

TOLERANCE = 1e-12  # of the last step of the fixed-point iteration, relative to max(1, |x|), or else
ROUNDINGS = 64  # units of rounding of the dtype (7.6e-6 in float32), some ten times the residual motion due to rounding
ITERATIONS = 2000
# Of the power iteration: per pass in training, where weights change little between steps, in evaluation, and at first.
POWER_TRAINING, POWER_EVALUATION, POWER_FIRST = 2, 100, 50


class NoFixedPoint(RuntimeError):
    """The fixed-point iteration does not converge: g is not a contraction, or not on this input."""


@dataclass(frozen=True)
class Series:
    """The number of computed terms of log|det(I + J)| = sum over k >= 1 of (-1)^(k+1) tr(J^k) / k.

    Attributes:
        terms: number of terms that are always computed.
        stop: None truncates the series there, which biases it (see `bias`). Otherwise the series stops after each
            further term with this probability, and each term is weighted by the inverse of its probability: Russian
            roulette, unbiased (Kahn 1955; Chen et al. 2019). Its variance is finite if the eigenvalues of J are below
            sqrt(1 - stop), which a bound L < 1 alone does not guarantee.
    """

    terms: int
    stop: float | None = None

    def bias(self, lipschitz: float) -> float:
        """Return the truncation bound per dimension.

        It is sum over k > terms of L^k / k < L^(terms + 1) / ((terms + 1) (1 - L)).
        """
        if self.stop is not None:
            return 0.0
        if not lipschitz < 1:
            return math.inf
        return lipschitz ** (self.terms + 1) / ((self.terms + 1) * (1 - lipschitz))

    def draw(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Return the factors of terms 1, 2, ... for each of `count` events, (terms, count), float64 on the CPU."""
        if self.stop is None:
            return torch.ones(self.terms, count, dtype=torch.float64)
        stay = torch.tensor(1 - self.stop, dtype=torch.float64)
        uniform = 1 - torch.rand(count, generator=generator, dtype=torch.float64)  # in (0, 1]
        further = (uniform.log() / stay.log()).floor().long()
        number = torch.arange(1, int(further.max()) + 1 if count else 1)[:, None]
        roulette = torch.where(number <= further, stay ** -number.double(), 0.0)
        return torch.cat([torch.ones(self.terms, count, dtype=torch.float64), roulette])


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
        reference = nn.Conv2d(inputs, outputs, kernel)
        self.weight = nn.Parameter(reference.weight.detach().clone())
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.limit = limit
        self.shape = (inputs, *(spatial if kernel > 1 else (1, 1)))
        self.register_buffer("v", _unit(torch.randn(1, *self.shape)))
        self.register_buffer("u", _unit(torch.randn(1, outputs, *self.shape[1:])))
        with torch.no_grad():
            self._remember(*self._iterate(POWER_FIRST))

    def normalised(self) -> Tensor:
        """Return the weight as applied, (outputs, inputs, kernel, kernel), differentiable in `weight`."""
        with torch.no_grad():
            u, v = self._iterate(POWER_TRAINING if self.training else POWER_EVALUATION)
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


class Network(nn.Module):
    """g: events to events of the same shape, from spectral convolutions and activations of slope at most 1."""

    def convolutions(self) -> list[tuple[str, SpectralConvolution]]:
        """Return (name, convolution) in the order of application."""
        return [(name, part) for name, part in self.named_modules() if isinstance(part, SpectralConvolution)]

    def weights(self) -> list[Tensor]:
        """Return the normalised weight of each convolution: computed once, then used in every call of g."""
        return [convolution.normalised() for _, convolution in self.convolutions()]

    @abstractmethod
    def forward(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        """Return g(x)."""

    @abstractmethod
    def lipschitz(self, norms: list[float]) -> float:
        """Return a bound on Lip(g) from the norms of its convolutions."""


class Contraction(nn.Module):
    """y = x + g(x), Lip(g) < 1; log|det| by a series of traces, each estimated by one vector of random signs.

    With v in {-1, 1}^D, E[v^T J^k v] = tr(J^k) (Hutchinson): one vector-Jacobian product per term, for all events at
    once. The gradient is not that of the estimate but another one of the same expectation that needs one product with a
    graph for any number of terms: of sum over k of (-1)^k v^T J^k dJ v (Chen et al. 2019, eq. 8), the sum of v^T J^k
    held fixed.

    The inverse iterates x <- y - g(x) from y until no entry changes by more than the tolerance, 1e-12 or 64 units of
    rounding, relative to max(1, |x|); the error is then at most L / (1 - L) times the last step, besides rounding.

    Only the bound on g makes it invertible, so `operators`, `lipschitz` and `bias` give an audit what is behind it.

    Args:
        net: g.
        training: the series in train(), one roulette for the whole batch.
        evaluation: the series in eval(), one roulette for each event, so that errors of events are independent.
    """

    def __init__(self, net: Network, training: Series, evaluation: Series) -> None:
        super().__init__()
        self.net = net
        self.training_series = training
        self.evaluation_series = evaluation

    @full_precision
    def map(self, x: Tensor) -> Tensor:
        """Return x + g(x)."""
        return x + self.net(x, self.net.weights())

    @full_precision
    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Map (N, C, H, W) to the same shape; return y and an estimate of log|det| of shape (N,)."""
        differentiable = torch.is_grad_enabled()
        series, count = (self.training_series, 1) if self.training else (self.evaluation_series, len(x))
        factors = series.draw(count, generator).to(x)
        # On the CPU and in whole numbers, so that a flow of another precision or device uses the same signs.
        signs = torch.randint(0, 2, x.shape, generator=generator).to(x) * 2 - 1
        weights = self.net.weights()
        with torch.enable_grad():
            start = x if differentiable and x.requires_grad else x.detach().requires_grad_()
            g = self.net(start, weights)
            product, kept = signs, signs * _each(factors[0], x)
            log_det = x.new_zeros(len(x))
            for index, factor in enumerate(factors):
                (product,) = torch.autograd.grad(g, start, product, retain_graph=True)
                sign = 1 if index % 2 == 0 else -1
                log_det = log_det + sign * factor / (index + 1) * (product * signs).flatten(1).sum(1)
                if differentiable and index + 1 < len(factors):
                    kept = kept - sign * _each(factors[index + 1], x) * product
            if differentiable:
                (last,) = torch.autograd.grad(g, start, kept, create_graph=True)
                surrogate = (last * signs).flatten(1).sum(1)
                log_det = log_det + surrogate - surrogate.detach()
        return (start + g if differentiable else x + g.detach()), log_det

    @full_precision
    def inverse(self, y: Tensor) -> Tensor:
        """Return the fixed point of x = y - g(x).

        Raises:
            NoFixedPoint: it did not converge within 2000 iterations, or its steps grow.
        """
        weights = self.net.weights()
        limit = max(TOLERANCE, ROUNDINGS * torch.finfo(y.dtype).eps)
        x, first = y, None
        for _ in range(ITERATIONS):
            x, before = y - self.net(x, weights), x
            move = x - before
            if bool((move.abs() <= limit * x.abs().clamp(min=1.0)).all()):
                return x
            length = float(move.norm())
            first = length if first is None else first
            if not length <= 2 * first:  # the steps of a contraction shrink
                raise NoFixedPoint("the steps of the inverse grow; the map is not a contraction")
        raise NoFixedPoint(f"the inverse has not converged after {ITERATIONS} iterations; is the map a contraction?")

    def operators(self) -> list[tuple[str, Tensor, tuple[int, ...], float]]:
        """Return (name, weight as applied, input shape, limit of its norm) of each convolution, zero-padded "same"."""
        named = zip(self.net.convolutions(), self.net.weights(), strict=True)
        return [(name, weight, convolution.shape, convolution.limit) for (name, convolution), weight in named]

    def lipschitz(self, norms: list[float]) -> float:
        """Return a bound on Lip(g) from the operator norms of `operators`, in their order."""
        return self.net.lipschitz(norms)

    def bias(self, lipschitz: float) -> float:
        """Return a bound on the bias of the estimates in eval(), in nats per dimension, for this Lip(g)."""
        return self.evaluation_series.bias(lipschitz)


def _each(factor: Tensor, x: Tensor) -> Tensor:
    """Return a factor (1,) or (N,) in a shape that broadcasts against (N, C, H, W)."""
    return factor.view(-1, *[1] * (x.ndim - 1))


def _unit(x: Tensor) -> Tensor:
    """Return x scaled to norm 1; zero stays zero."""
    return x / torch.linalg.vector_norm(x).clamp(min=torch.finfo(x.dtype).tiny)
