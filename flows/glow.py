"""The shared backbone: Glow's multi-scale flow (Kingma & Dhariwal 2018) around any linear layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from flows.actnorm import ActNorm
from flows.bijection import Bijection
from flows.couplings import AffineCoupling, Coupling, make_coupling, make_split_prior
from flows.permutation import Permutation
from flows.seeding import seeded
from flows.shapes import level_shapes
from flows.squeeze import Squeeze

Shape = tuple[int, ...]
MakeLayer = Callable[[Shape], nn.Module]
Prior = Literal["standard", "learned"]


class Step(nn.Module):
    """ActNorm -> 1x1 mixer (optional) -> layer under test -> coupling."""

    def __init__(
        self,
        shape: Shape,
        make_layer: MakeLayer,
        make_mixer: MakeLayer | None,
        coupling: Coupling,
        width: int,
        seed: int,
        path: str,
    ) -> None:
        super().__init__()
        self.path = path
        self.actnorm = ActNorm(shape[0])
        self.mixer: nn.Module | None = None
        if make_mixer is not None:
            with seeded(seed, f"{path}/mixer"):
                self.mixer = make_mixer(shape)
        with seeded(seed, f"{path}/layer"):
            self.layer = make_layer(shape)
        with seeded(seed, f"{path}/coupling"):
            self.coupling = make_coupling(coupling, shape, width)

    def parts(self) -> list[tuple[str, nn.Module]]:
        """(path, module) in the order of application."""
        parts = {"actnorm": self.actnorm, "mixer": self.mixer, "layer": self.layer, "coupling": self.coupling}
        return [(f"{self.path}/{name}", module) for name, module in parts.items() if module is not None]


class Level(nn.Module):
    """Squeeze -> steps -> learned prior of the half that leaves (all but the last level, and optional)."""

    def __init__(self, path: str, squeeze: Squeeze, steps: list[Step], split_prior: AffineCoupling | None) -> None:
        super().__init__()
        self.path = path
        self.squeeze = squeeze
        self.steps = nn.ModuleList(steps)
        self.split_prior = split_prior

    def parts(self) -> list[tuple[str, nn.Module]]:
        """(path, module) in the order of application."""
        parts: list[tuple[str, nn.Module]] = [(f"{self.path}/squeeze", self.squeeze)]
        for step in self.steps:
            parts += cast(Step, step).parts()
        if self.split_prior is not None:
            parts.append((f"{self.path}/split_prior", self.split_prior))
        return parts


class Glow(nn.Module):
    """x -> z: levels of squeeze, steps and split, with a standard normal z of the same dimension D.

    log p(x) = log N(z; 0, I) + log|det dz/dx|. Every weight is drawn under (seed, path), such as
    (0, "level0/step1/coupling"), so the backbone is drawn equal whichever layer is tested. Sums over dimensions
    and over parts are taken in the model's dtype: in float32 log p carries a relative error of about 1e-7
    times the sum of the magnitudes it adds up.

    Args:
        shape: event shape (C, L) or (C, H, W).
        make_layer: event shape -> the layer under test, a module with forward(x) -> (y, log|det| of one event,
            shape () or (N,)) and inverse(y) -> x.
        make_mixer: the same for the 1x1 that precedes the layer in every step; None for no mixer.
        levels: number of levels; every spatial axis must be divisible by 2^levels.
        steps: steps per level.
        width: hidden channels of the coupling networks.
        coupling: see `flows.couplings.make_coupling`.
        prior: of the half that leaves at a split: "standard" takes it as N(0, I); "learned" standardises it by
            a Gaussian that depends on the kept half, one more affine coupling, so z is standard normal anyway.
        seed: draws the initial weights.
        split_step: one more full step, its coupling of width min(8C, 512), before each split, as in the
            released image code of ButterflyFlow (Meng et al., ICML 2022).
        order: a fixed permutation of all D entries before the first level, which then sees entry order[i] of x in
            place i; None for none.

    Raises:
        UnsupportedEvent: the shape does not allow these levels.
        ValueError: an unknown coupling or prior, no step, no width, an order that is no permutation.
        Whatever make_layer and make_mixer raise, unchanged.
    """

    def __init__(
        self,
        shape: Shape,
        make_layer: MakeLayer,
        make_mixer: MakeLayer | None = None,
        *,
        levels: int,
        steps: int,
        width: int,
        coupling: Coupling = "auto",
        prior: Prior = "standard",
        seed: int = 0,
        split_step: bool = False,
        order: Sequence[int] | Tensor | None = None,
    ) -> None:
        super().__init__()
        if prior not in get_args(Prior):
            raise ValueError(f"prior {prior!r} is not known; use one of {', '.join(get_args(Prior))}")
        if steps < 1:
            raise ValueError(f"steps = {steps}: a level needs at least 1 step")
        self.shape = tuple(shape)
        self.dim = math.prod(self.shape)
        self.level_shapes = level_shapes(self.shape, levels)
        self.permutation = None if order is None else Permutation(self.shape, order)
        self.levels = nn.ModuleList()
        event = self.shape
        for index, inner in enumerate(self.level_shapes):
            path, last = f"level{index}", index == levels - 1
            widths = {f"{path}/step{number}": width for number in range(steps)}
            if split_step and not last:
                widths[f"{path}/split_step"] = min(8 * inner[0], 512)
            built = [Step(inner, make_layer, make_mixer, coupling, w, seed, p) for p, w in widths.items()]
            split_prior = None
            if prior == "learned" and not last:
                with seeded(seed, f"{path}/split_prior"):
                    split_prior = make_split_prior(inner)
            self.levels.append(Level(path, Squeeze(event), built, split_prior))
            event = (inner[0] // 2, *inner[1:])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, *shape) -> z of shape (N, D) and log|det dz/dx| of shape (N,) in nats.

        z holds the halves that left, first level first, then what the last level gave.
        """
        self._check(x, self.shape)
        log_det = x.new_zeros(len(x))
        hidden, pieces = x, []
        for level, parts in enumerate(self._parts()):
            for path, bijection in parts:
                hidden, term = bijection(hidden)
                if term.ndim and term.shape != log_det.shape:
                    raise ValueError(
                        f"{path} ({type(bijection).__name__}) returned a log-determinant of shape "
                        f"{tuple(term.shape)}; it must be () or (N,) = {tuple(log_det.shape)}"
                    )
                log_det = log_det + term
            if level < len(self.levels) - 1:
                hidden, left = hidden.chunk(2, dim=1)
                pieces.append(left.flatten(1))
        return torch.cat([*pieces, hidden.flatten(1)], dim=1), log_det

    def inverse(self, z: Tensor) -> Tensor:
        """(N, D) -> x of shape (N, *shape)."""
        self._check(z, (self.dim,))
        halves = [(channels // 2, *spatial) for channels, *spatial in self.level_shapes[:-1]]
        sizes = [math.prod(half) for half in halves]
        *pieces, last = z.split([*sizes, self.dim - sum(sizes)], dim=1)
        hidden = last.reshape(-1, *self.level_shapes[-1])
        for level, parts in reversed(list(enumerate(self._parts()))):
            if level < len(halves):
                hidden = torch.cat([hidden, pieces[level].reshape(-1, *halves[level])], dim=1)
            for _, bijection in reversed(parts):
                hidden = bijection.inverse(hidden)
        return hidden

    def terms(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log N(z; 0, I) and log|det dz/dx|, each of shape (N,) in nats; their sum is log p(x)."""
        z, log_det = self(x)
        return -0.5 * (z.square().sum(1) + self.dim * math.log(2 * math.pi)), log_det

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x) of shape (N,), in nats."""
        log_prior, log_det = self.terms(x)
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
            if isinstance(module, (ActNorm, AffineCoupling)):
                module.initialise(value)

    def trace(self, x: Tensor) -> Iterator[tuple[str, nn.Module, Tensor]]:
        """(path, module, input) of every elementary bijection, in order; each is applied once it was yielded."""
        self._check(x, self.shape)
        hidden = x
        for level, parts in enumerate(self._parts()):
            for path, bijection in parts:
                yield path, cast(nn.Module, bijection), hidden
                hidden, _ = bijection(hidden)
            if level < len(self.levels) - 1:
                hidden, _ = hidden.chunk(2, dim=1)

    def linear_layers(self) -> list[tuple[str, nn.Module]]:
        """(path, module) of every layer under test and every mixer, in order."""
        parts = [part for level in self._parts() for part in level]
        return [(path, cast(nn.Module, module)) for path, module in parts if path.endswith(("/mixer", "/layer"))]

    def _parts(self) -> list[list[tuple[str, Bijection]]]:
        """Per level, (path, bijection) in the order of application."""
        parts = [cast(Level, level).parts() for level in self.levels]
        if self.permutation is not None:
            parts[0].insert(0, ("permutation", self.permutation))
        return cast(list[list[tuple[str, Bijection]]], parts)

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
