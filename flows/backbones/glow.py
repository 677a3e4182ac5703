"""The shared backbone: Glow's multi-scale flow (Kingma & Dhariwal 2018) around any linear layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, cast, get_args

from torch import Tensor, nn

from flows.actnorm import ActNorm
from flows.affine import GateName
from flows.backbone import Backbone, MakeLayer
from flows.couplings import AffineCoupling, Coupling, Reach, make_coupling, make_split_prior
from flows.permutation import Permutation
from flows.protocol import Part, Shape, seeded
from flows.shapes import level_shapes
from flows.squeeze import Squeeze

Prior = Literal["standard", "learned"]


class Step(nn.Module):
    """ActNorm -> 1x1 mixer (optional) -> layer under test -> coupling."""

    def __init__(
        self,
        shape: Shape,
        make_layer: MakeLayer,
        make_mixer: MakeLayer | None,
        coupling: Coupling,
        gate: GateName,
        width: int,
        reach: Reach,
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
            self.coupling = make_coupling(coupling, shape, width, gate, reach)

    def parts(self) -> list[tuple[str, nn.Module]]:
        """Return (path, module) in the order of application."""
        parts = {"actnorm": self.actnorm, "mixer": self.mixer, "layer": self.layer, "coupling": self.coupling}
        return [(f"{self.path}/{name}", module) for name, module in parts.items() if module is not None]


class Level(nn.Module):
    """Squeeze -> steps -> learned prior of the half that is factored out (all but the last level, and optional).

    A vector has no squeeze.
    """

    def __init__(
        self, path: str, squeeze: Squeeze | None, steps: list[Step], split_prior: AffineCoupling | None
    ) -> None:
        super().__init__()
        self.path = path
        self.squeeze = squeeze
        self.steps = nn.ModuleList(steps)
        self.split_prior = split_prior

    def parts(self) -> list[tuple[str, nn.Module]]:
        """Return (path, module) in the order of application."""
        parts: list[tuple[str, nn.Module]] = []
        if self.squeeze is not None:
            parts.append((f"{self.path}/squeeze", self.squeeze))
        for step in self.steps:
            parts += cast(Step, step).parts()
        if self.split_prior is not None:
            parts.append((f"{self.path}/split_prior", self.split_prior))
        return parts


class Glow(Backbone):
    """x -> z: levels of squeeze, steps and split, with a standard normal z of the same dimension D.

    log p(x) = log N(z; 0, I) + log|det dz/dx|. Every weight is drawn under (seed, path), such as
    (0, "level0/step1/coupling"), so the backbone is equal whichever layer is tested.

    Args:
        shape: event shape (C, L) or (C, H, W).
        make_layer: event shape -> the layer under test, a module with forward(x) -> (y, log|det| of one event,
            shape () or (N,)) and inverse(y) -> x.
        make_mixer: the same for the 1x1 that precedes the layer in every step; None for no mixer.
        levels: number of levels; every spatial axis must be divisible by 2^levels. An event of one position, such as
            the vector (D, 1), is not squeezed and has one level.
        steps: steps per level.
        width: hidden channels of the coupling networks.
        coupling, gate, reach: see `flows.couplings.make_coupling`.
        prior: prior of the half factored out at a split: "standard" takes it as N(0, I); "learned" standardises it by
            a Gaussian that depends on the kept half, one more affine coupling, so z is standard normal in either case.
        seed: draws the initial weights.
        split_step: one more full step, its coupling of width min(8C, 512), before each split, as in the
            released image code of ButterflyFlow (Meng et al., ICML 2022).
        order: a fixed permutation of all D entries before the first level, which then sees entry order[i] of x in
            place i; None for none.

    Raises:
        UnsupportedEvent: the shape does not allow these levels.
        ValueError: an unknown coupling, gate or prior, no step, no width, an order that is not a permutation.
        Exceptions of make_layer and make_mixer propagate unchanged.
    """

    capacities: ClassVar[Mapping[str, str]] = {
        "width": "coupling width",
        "steps": "steps per level",
        "reach": "positions that a coupling sees",
    }
    title: ClassVar[str] = "Glow with "

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
        gate: GateName = "published",
        prior: Prior = "standard",
        reach: Reach = 1,
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
            built = [Step(inner, make_layer, make_mixer, coupling, gate, w, reach, seed, p) for p, w in widths.items()]
            split_prior = None
            if prior == "learned" and not last:
                with seeded(seed, f"{path}/split_prior"):
                    split_prior = make_split_prior(inner)
            self.levels.append(Level(path, None if inner == event else Squeeze(event), built, split_prior))
            event = (inner[0] // 2, *inner[1:])

    def parts(self) -> list[list[Part]]:
        """Return, per level, (path, bijection) in the order of application."""
        parts = [cast(Level, level).parts() for level in self.levels]
        if self.permutation is not None:
            parts[0].insert(0, ("permutation", self.permutation))
        return cast(list[list[Part]], parts)

    @classmethod
    def layer_shapes(cls, shape: Shape, levels: int) -> list[Shape]:
        """Return the event shape inside each level."""
        return level_shapes(shape, levels)

    @classmethod
    def described(cls, settings: Any) -> str:
        """Return levels, steps and width, and what is not as by default."""
        levels, steps = settings.levels, settings.steps
        text = f"{levels} level{'s' * (levels != 1)} of {steps} step{'s' * (steps != 1)}, width {settings.width}"
        text += ", couplings of attention" * (settings.coupling == "attention")
        if settings.reach != 1:
            seen = "all" if settings.reach == "all" else settings.reach
            text += f" for couplings of one position; those here see {seen}, with nearly as many parameters"
        return text + ", coupling scales bounded to (0.5, 1.5)" * (settings.gate == "bounded")
