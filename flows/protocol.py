"""What the harness asks of a flow, written down once: the backbone and every other row of a table keep it.

A flow is a chain of elementary bijections in levels, each of which has a path, such as "level0/step1/coupling".
Between levels half of the channels may leave; what has left and what remains is z, standard normal. Trained, evaluated
and sampled is the whole; audited is each bijection at its own input (`trace`), so none may hide inside another.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from flows.actnorm import ActNorm
from flows.bijection import Bijection, Estimated
from flows.couplings import AffineCoupling, MaskedCoupling

Shape = tuple[int, ...]
Part = tuple[str, Bijection]


class Flow(nn.Module):
    """x -> z of the same dimension D, with log p(x) = log N(z; 0, I) + log|det dz/dx|.

    A subclass builds its modules, sets the attributes below after `super().__init__()`, and says in `parts` in which
    order they apply. Sums over dimensions and over parts are taken in the model's dtype: in float32 log p carries a
    relative error of about 1e-7 times the sum of the magnitudes it adds up.

    The modes of nn.Module matter to flows of estimates alone: in `train()` they follow the weights as they move and
    estimate cheaply, in `eval()` they do so carefully and leave their state alone.

    Attributes:
        shape: event shape (C, L) or (C, H, W).
        dim: D, the number of its entries.
        level_shapes: the event shape at the end of each level, before half of it leaves.
        splits: whether half of the channels leaves after every level but the last.
    """

    shape: Shape
    dim: int
    level_shapes: list[Shape]
    splits: bool = True

    @abstractmethod
    def parts(self) -> list[list[Part]]:
        """Per level, (path, bijection) in the order of application."""
        raise NotImplementedError

    @property
    def estimated(self) -> bool:
        """Whether some log-determinant is an estimate, and hence the likelihood."""
        return any(isinstance(module, Estimated) for level in self.parts() for _, module in level)

    def forward(self, x: Tensor, chance: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """(N, *shape) -> z of shape (N, D) and log|det dz/dx| of shape (N,) in nats.

        z holds the halves that left, first level first, then what the last level gave.

        Args:
            x: events in the model's dtype.
            chance: draws what estimates need, on the CPU; equal states give equal estimates. None uses torch's
                global generator. Only a flow that has estimates is ever given one.
        """
        self._check(x, self.shape)
        log_det = x.new_zeros(len(x))
        hidden, pieces = x, []
        parts = self.parts()
        for level, bijections in enumerate(parts):
            for path, bijection in bijections:
                if isinstance(bijection, Estimated):
                    hidden, term = bijection(hidden, chance)
                else:
                    hidden, term = bijection(hidden)
                if term.ndim and term.shape != log_det.shape:
                    raise ValueError(
                        f"{path} ({type(bijection).__name__}) returned a log-determinant of shape "
                        f"{tuple(term.shape)}; it must be () or (N,) = {tuple(log_det.shape)}"
                    )
                log_det = log_det + term
            if self.splits and level < len(parts) - 1:
                hidden, left = hidden.chunk(2, dim=1)
                pieces.append(left.flatten(1))
        return torch.cat([*pieces, hidden.flatten(1)], dim=1), log_det

    def inverse(self, z: Tensor) -> Tensor:
        """(N, D) -> x of shape (N, *shape)."""
        self._check(z, (self.dim,))
        halves = [(channels // 2, *spatial) for channels, *spatial in self.level_shapes[:-1]] if self.splits else []
        sizes = [math.prod(half) for half in halves]
        *pieces, last = z.split([*sizes, self.dim - sum(sizes)], dim=1)
        hidden = last.reshape(-1, *self.level_shapes[-1])
        for level, bijections in reversed(list(enumerate(self.parts()))):
            if level < len(halves):
                hidden = torch.cat([hidden, pieces[level].reshape(-1, *halves[level])], dim=1)
            for _, bijection in reversed(bijections):
                hidden = bijection.inverse(hidden)
        return hidden

    def terms(self, x: Tensor, chance: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """log N(z; 0, I) and log|det dz/dx|, each of shape (N,) in nats; their sum is log p(x)."""
        z, log_det = self(x) if chance is None else self(x, chance)
        return -0.5 * (z.square().sum(1) + self.dim * math.log(2 * math.pi)), log_det

    def log_prob(self, x: Tensor, chance: torch.Generator | None = None) -> Tensor:
        """log p(x) of shape (N,), in nats; of a flow of estimates an unbiased one where those are."""
        log_prior, log_det = self.terms(x) if chance is None else self.terms(x, chance)
        return log_prior + log_det

    @torch.no_grad()
    def sample(self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        """Draw n events, shape (n, *shape), from z ~ N(0, temperature^2 I).

        Args:
            n: number of events, at least 1.
            temperature: standard deviation of z; below 1 gives more typical samples.
            generator: draws z, on its own device (a CPU generator gives the same z for every device); None
                uses torch's global generator of the model's device.
        """
        if n < 1:
            raise ValueError(f"sample: n = {n}; ask for at least 1 event")
        weight = next(self.parameters())
        device = weight.device if generator is None else generator.device
        z = torch.randn(n, self.dim, dtype=weight.dtype, device=device, generator=generator)
        return self.inverse(temperature * z.to(weight.device))

    @torch.no_grad()
    def initialise(self, x: Tensor) -> None:
        """Data-dependent initialisation of every ActNorm and coupling network, in the order of application.

        Args:
            x: a batch as the flow will see it, shape (N, *shape).

        Raises:
            ValueError: x is empty or holds values that are not finite.
        """
        self._check(x, self.shape)
        if not len(x) or not bool(x.isfinite().all()):
            raise ValueError(f"initialise: the batch of {len(x)} events must be non-empty and finite")
        for _, module, value in self.trace(x):
            if isinstance(module, (ActNorm, AffineCoupling, MaskedCoupling)):
                module.initialise(value)

    def trace(self, x: Tensor) -> Iterator[tuple[str, nn.Module, Tensor]]:
        """(path, module, input) of every elementary bijection, in order; each is applied once it was yielded."""
        self._check(x, self.shape)
        hidden = x
        parts = self.parts()
        for level, bijections in enumerate(parts):
            for path, bijection in bijections:
                yield path, cast(nn.Module, bijection), hidden
                hidden = bijection.map(hidden) if isinstance(bijection, Estimated) else bijection(hidden)[0]
            if self.splits and level < len(parts) - 1:
                hidden, _ = hidden.chunk(2, dim=1)

    def linear_layers(self) -> list[tuple[str, nn.Module]]:
        """(path, module) of every layer under test (".../layer") and every mixer beside it, in order; here none."""
        return []

    def _check(self, x: Tensor, event: Shape) -> None:
        """Raise ValueError unless x is a batch of `event` in the model's dtype."""
        if x.ndim != len(event) + 1 or tuple(x.shape[1:]) != event:
            raise ValueError(
                f"input of shape {tuple(x.shape)} is not a batch of events {event}; "
                f"expected (N, {', '.join(map(str, event))})"
            )
        dtype = next(self.parameters()).dtype
        if x.dtype != dtype:
            raise ValueError(
                f"input has dtype {x.dtype}, the flow {dtype}; dequantise and preprocess raw integers, "
                "and convert one of the two with .to(dtype)"
            )
