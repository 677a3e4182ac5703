"""The shared backbone: Glow's multi-scale flow (Kingma & Dhariwal 2018) around any linear layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, cast, get_args

from torch import Tensor, nn

from flows.actnorm import ActNorm
from flows.affine import GateName
from flows.backbone import Backbone, MakeLayer
from flows.couplings import Coupling, Reach, make_coupling, make_split_prior
from flows.permutation import Permutation
from flows.protocol import Part, Shape, drawn, seeded
from flows.shapes import level_shapes
from flows.squeeze import Squeeze
from layers.base import check_choice, check_whole

Prior = Literal["standard", "learned"]


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
        check_choice("glow", "prior", prior, get_args(Prior))
        check_whole("glow", "steps", steps)
        self.shape = tuple(shape)
        self.dim = math.prod(self.shape)
        self.level_shapes = level_shapes(self.shape, levels)
        self.permutation = None if order is None else Permutation(self.shape, order)
        self.steps = steps
        self.levels = nn.ModuleList()
        event = self.shape
        for index, inner in enumerate(self.level_shapes):
            path, last = f"level{index}", index == levels - 1
            widths = {f"{path}/step{number}": width for number in range(steps)}
            if split_step and not last:
                widths[f"{path}/split_step"] = min(8 * inner[0], 512)
            level = nn.ModuleDict({} if inner == event else {"squeeze": Squeeze(event)})
            level["steps"] = built = nn.ModuleList()
            for step, step_width in widths.items():
                makers = {
                    "actnorm": partial(ActNorm, inner[0]),
                    "mixer": make_mixer and partial(make_mixer, inner),
                    "layer": partial(make_layer, inner),
                    "coupling": partial(make_coupling, coupling, inner, step_width, gate, reach),
                }
                modules = drawn(seed, step, **makers)
                built.append(nn.ModuleDict({name.rpartition("/")[2]: modules[name] for name in modules}))
            if prior == "learned" and not last:
                with seeded(seed, f"{path}/split_prior"):
                    level["split_prior"] = make_split_prior(inner)
            self.levels.append(level)
            event = (inner[0] // 2, *inner[1:])

    def parts(self) -> list[list[Part]]:
        """Return, per level, (path, bijection) in the order of application."""
        levels: list[list[tuple[str, nn.Module]]] = []
        for index, level in enumerate(cast(list[nn.ModuleDict], self.levels)):
            parts: list[tuple[str, nn.Module]] = []
            if not index and self.permutation is not None:
                parts.append(("permutation", self.permutation))
            for name, module in level.items():
                steps = cast(list[nn.ModuleDict], module) if name == "steps" else []
                for number, step in enumerate(steps):
                    path = f"level{index}/" + (f"step{number}" if number < self.steps else "split_step")
                    parts += [(f"{path}/{part}", bijection) for part, bijection in step.items()]
                if name != "steps":
                    parts.append((f"level{index}/{name}", module))
            levels.append(parts)
        return cast(list[list[Part]], levels)

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
