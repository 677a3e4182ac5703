"""The interface between the harness and a flow: the backbone and every baseline implement it.

A flow is a chain of elementary bijections in levels, each of which has a path, such as "level0/step1/coupling".
Between levels half of the channels may be factored out; z, standard normal, consists of these halves and the remainder.
The whole flow is trained, evaluated and sampled; the audit checks each bijection at its own input (`trace`), so no
bijection may be hidden inside another.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Protocol, cast

import torch
from torch import Tensor, nn

from flows.contraction import Contraction
from layers.linalg.precision import check_precision, full_precision

Shape = tuple[int, ...]


class Bijection(Protocol):
    """An nn.Module that maps events to events bijectively.

    Calling it gives y and log|det dy/dx| of one whole event in nats, of shape (N,), or () if it is equal for every
    event; `inverse` gives x.
    """

    def __call__(self, x: Tensor, /) -> tuple[Tensor, Tensor]:
        """Map x to (y, log|det|)."""
        ...

    def inverse(self, y: Tensor, /) -> Tensor:
        """Map y back to x."""
        ...


class Dense(nn.Module):
    """A bijection whose Jacobian has no structure that a few products could check: an audit needs all of it."""


Part = tuple[str, Bijection]


@contextmanager
def seeded(seed: int, path: str) -> Iterator[None]:
    """Draw from torch's CPU generator as seeded by (seed, path); restore its former state afterwards.

    Every module that is built under its own path draws the same weights whatever its neighbours draw, so that
    two models which differ in one layer start from equal weights everywhere else. Only the CPU generator is
    used: build a model on the CPU and move it.
    """
    digest = hashlib.sha256(f"{seed}:{path}".encode()).digest()
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also seed the accelerators, whose state would not be restored.
        torch.default_generator.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        yield


def drawn(seed: int, path: str, **makers: Callable[[], nn.Module] | None) -> dict[str, nn.Module]:
    """Return path/name -> module of each maker that there is, its weights drawn under (seed, path/name)."""
    modules = {}
    for name, make in makers.items():
        if make is not None:
            with seeded(seed, f"{path}/{name}"):
                modules[f"{path}/{name}"] = make()
    return modules


class Flow(nn.Module):
    """x -> z of the same dimension D, with log p(x) = log N(z; 0, I) + log|det dz/dx|.

    A subclass sets the attributes below after `super().__init__()`, and hands its modules to `set_levels` or defines
    `parts`. Sums over dimensions and over parts are in the model's dtype, float32 or float64, under torch.autocast as
    well: in float32 log p has a relative error of about 1e-7 times the sum of the magnitudes of the terms.

    The modes of nn.Module matter only to flows with estimates: in `train()` they follow the moving weights and estimate
    cheaply, in `eval()` they estimate carefully and do not change their state.

    Attributes:
        shape: event shape (C, L) or (C, H, W).
        dim: D, the number of its entries.
        level_shapes: the event shape at the end of each level, before half of it is factored out.
        splits: whether half of the channels is factored out after every level but the last.
        remark: a remark for tables; None: none.
    """

    shape: Shape
    dim: int
    level_shapes: list[Shape]
    splits: bool = True
    remark: ClassVar[str | None] = None

    def set_levels(self, levels: list[list[tuple[str, nn.Module]]]) -> None:
        """Register, per level, (path, bijection) in the order of application."""
        self.levels = nn.ModuleList(nn.ModuleList(module for _, module in level) for level in levels)
        self._paths = [[path for path, _ in level] for level in levels]

    def parts(self) -> list[list[Part]]:
        """Return, per level, (path, bijection) in the order of application."""
        levels = zip(self._paths, cast("list[list[Bijection]]", self.levels), strict=True)
        return [list(zip(paths, modules, strict=True)) for paths, modules in levels]

    @property
    def estimated(self) -> bool:
        """True if some log-determinant, and hence the likelihood, is an estimate."""
        return any(isinstance(module, Contraction) for level in self.parts() for _, module in level)

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Map (N, *shape) to z of shape (N, D); return z and log|det dz/dx| of shape (N,) in nats.

        z holds the halves that were factored out, first level first, then the output of the last level.

        Args:
            x: events in the model's dtype.
            generator: draws the random numbers of estimates, on the CPU; equal states give equal estimates. None uses
                torch's global generator. Only a flow with estimates ever receives one.
        """
        self._check(x, self.shape)
        hidden, pieces, terms = x, [], [x.new_zeros(len(x))]
        parts = self.parts()
        for level, bijections in enumerate(parts):
            for path, bijection in bijections:
                if isinstance(bijection, Contraction):
                    hidden, term = bijection(hidden, generator)
                else:
                    hidden, term = bijection(hidden)
                if term.ndim and term.shape != (len(x),):
                    raise ValueError(
                        f"{path} ({type(bijection).__name__}) returned a log-determinant of shape "
                        f"{tuple(term.shape)}; it must be () or (N,) = ({len(x)},)"
                    )
                terms.append(term)
            if self.splits and level < len(parts) - 1:
                hidden, left = hidden.chunk(2, dim=1)
                pieces.append(left.flatten(1))
        # Two sums of many terms take less time than as many additions.
        log_det = torch.stack([term for term in terms if term.ndim]).sum(0)
        shared = [term for term in terms if not term.ndim]
        if shared:
            log_det = log_det + torch.stack(shared).sum()
        return torch.cat([*pieces, hidden.flatten(1)], dim=1), log_det

    def inverse(self, z: Tensor) -> Tensor:
        """Map z (N, D) to x of shape (N, *shape)."""
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

    def terms(self, x: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return log N(z; 0, I) and log|det dz/dx|, each of shape (N,) in nats; their sum is log p(x)."""
        z, log_det = self(x) if generator is None else self(x, generator)
        return self._log_prior(z), log_det

    @full_precision
    def _log_prior(self, z: Tensor) -> Tensor:
        """Return log N(z; 0, I), (N,)."""
        return -0.5 * (torch.linalg.vecdot(z, z) + self.dim * math.log(2 * math.pi))

    def log_prob(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return log p(x) of shape (N,), in nats; for a flow with unbiased estimates an unbiased estimate of it."""
        log_prior, log_det = self.terms(x) if generator is None else self.terms(x, generator)
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
        """Initialise on data, in the order of application, every part with a method `initialise`.

        These are ActNorm, couplings with such a network, and a layer under test that defines the method. Each is called
        once with what arrives at it.

        Args:
            x: a batch of prepared events, shape (N, *shape).

        Raises:
            ValueError: x is empty or holds values that are not finite.
        """
        self._check(x, self.shape)
        if not len(x) or not bool(x.isfinite().all()):
            raise ValueError(f"initialise: the batch of {len(x)} events must be non-empty and finite")
        for _, module, value in self.trace(x):
            initialise = getattr(module, "initialise", None)
            if initialise is not None:
                initialise(value)

    def trace(self, x: Tensor) -> Iterator[tuple[str, nn.Module, Tensor]]:
        """Yield (path, module, input) of every elementary bijection, in order; each is applied after it was yielded."""
        self._check(x, self.shape)
        hidden = x
        parts = self.parts()
        for level, bijections in enumerate(parts):
            for path, bijection in bijections:
                yield path, cast(nn.Module, bijection), hidden
                hidden = bijection.map(hidden) if isinstance(bijection, Contraction) else bijection(hidden)[0]
            if self.splits and level < len(parts) - 1:
                hidden, _ = hidden.chunk(2, dim=1)

    def linear_layers(self) -> list[tuple[str, nn.Module]]:
        """Return (path, module) of every layer under test (".../layer") and every mixer (".../mixer"), in order."""
        parts = [part for level in self.parts() for part in level]
        return [(path, cast(nn.Module, module)) for path, module in parts if path.endswith(("/mixer", "/layer"))]

    def _check(self, x: Tensor, event: Shape) -> None:
        """Raise ValueError unless x is a batch of `event` in the model's dtype."""
        if x.ndim != len(event) + 1 or tuple(x.shape[1:]) != event:
            raise ValueError(
                f"input of shape {tuple(x.shape)} is not a batch of events {event}; "
                f"expected (N, {', '.join(map(str, event))})"
            )
        dtype = next(self.parameters()).dtype
        check_precision(self, dtype)
        if x.dtype != dtype:
            raise ValueError(
                f"input has dtype {x.dtype}, the flow {dtype}; dequantise and preprocess raw integers, "
                "and convert one of the two with .to(dtype)"
            )
