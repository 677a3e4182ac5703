"""The section `tuning:` of a density suite: the space of settings, and the candidates drawn from it.

    tuning:
      candidates: 8          # of each layer on each data set
      seed: 100              # of their training; the final seeds are others
      space:
        training.learning_rate: {low: 5.0e-4, high: 5.0e-2, scale: log}
        training.clip_norm: [null, 1.0]
      steps: 400             # training steps of a candidate
    layers:
      butterfly: {tune: {initialisation: [identity, rotation]}}

Every layer has the same number of candidates. The settings of `space` have the same values in every layer's candidates;
options of a layer (`tune`) are drawn beside them, so that each layer searches its own options within the same number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from harness.core.errors import nearest
from harness.core.settings import Count, Options, Settings
from harness.kinds.density.trial import OPTION
from harness.kinds.density.tuning.strategy import strategy
from harness.planning.suite_model import Number

OPTIMISER = ("learning_rate", "warmup", "decay", "layer_decay", "ema", "ema_decay", "clip_norm")
TUNABLE = (*(f"training.{name}" for name in OPTIMISER), "flow.steps")
"""Settings that a space may have: those of the optimiser, and the depth of the flow. The rest of the backbone, budget
and measurement are the same for all."""


class Range(Settings):
    """Values between `low` and `high`; whole numbers if both are.

    Attributes:
        low, high: the ends.
        scale: of the values between them.
    """

    low: Number
    high: Number
    scale: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not self.low < self.high:
            raise ValueError(f"low {self.low} must be less than high {self.high}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"low {self.low} must be greater than 0 on a logarithmic scale")
        return self

    @property
    def ends(self) -> tuple[int | float, ...]:
        """Both ends; a setting that takes them takes all values between."""
        return self.low, self.high

    def at(self, place: float) -> int | float:
        """Return the value at a place in [0, 1), to three digits."""
        if self.scale == "log":
            value = math.exp(math.log(self.low) + place * math.log(self.high / self.low))
        else:
            value = self.low + place * (self.high - self.low)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return round(value)
        return min(max(float(f"{value:.3g}"), float(self.low)), float(self.high))


class Choices(Settings):
    """A list of values, each equally likely.

    Attributes:
        values: two or more.
    """

    values: Annotated[tuple[Any, ...], Field(min_length=2)]

    @property
    def ends(self) -> tuple[Any, ...]:
        """All values."""
        return self.values

    def at(self, place: float) -> Any:
        """Return the value at a place in [0, 1)."""
        return self.values[int(place * len(self.values))]


def _dimension(value: Any) -> Any:
    """Read a list as choices and a mapping as a range."""
    if isinstance(value, (Range, Choices)):
        return value
    if isinstance(value, (list, tuple)):
        if len(value) < 2:
            raise ValueError("a list of choices needs at least two values; write {low: .., high: ..} for a range")
        return Choices(values=tuple(value))
    if not isinstance(value, dict):
        raise ValueError("expected a list of values, or {low: .., high: .., scale: linear|log}")
    for key in value:
        if key not in Range.model_fields:
            raise ValueError(f"unknown key {key!r} of a range; {nearest(str(key), Range.model_fields)}")
    if not {"low", "high"} <= value.keys():
        raise ValueError("a range has the keys low, high and scale (linear or log), the first two always")
    return Range(**value)


def _known_paths(space: Any) -> Any:
    if not isinstance(space, dict):
        return space
    for path in space:
        if path not in TUNABLE:
            raise ValueError(
                f"{path!r} cannot be tuned; {nearest(path, TUNABLE)} (options of a layer: `tune` in its row)"
            )
    return space


Dimension = Annotated[Range | Choices, BeforeValidator(_dimension, json_schema_input_type=Range | list[Any])]
Space = Annotated[Mapping[str, Dimension], BeforeValidator(_known_paths)]
Tune = Mapping[str, Dimension]


def _a_choice(candidates: int) -> int:
    if candidates == 1:
        raise ValueError("1 candidate leaves nothing to choose; give at least 2, or 0 to tune nothing")
    return candidates


def _strategy_name(name: str) -> str:
    strategy(name)
    return name


StrategyName = Annotated[str, AfterValidator(_strategy_name)]


class TuningSettings(Settings):
    """The section `tuning` of a suite, a profile or a data set; see the module.

    Attributes:
        candidates: of each layer on each data set; 0: nothing is tuned.
        seed: of the points, and of the training of every candidate.
        space: setting, such as training.learning_rate -> list of values, or range.
        steps: training steps of a candidate that runs to the end; null: as many as the final training.
        strategy: how candidates are drawn, and which of them end early (a file of
            `harness.kinds.density.tuning.strategies`).
    """

    candidates: Annotated[int, Field(ge=0, le=1000, strict=True), AfterValidator(_a_choice)] = 0
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 100
    space: Space = Field(default_factory=dict)
    steps: Count | None = None
    strategy: StrategyName = "sobol"

    def draw(self, tune: Mapping[str, Range | Choices], seed: int) -> tuple[Options, ...]:
        """Return the candidates of a layer as changes of its trials' settings, from the points of a seed.

        Shared settings agree between layers, and more candidates contain the fewer.
        """
        dimensions = dict(self.space) | {f"{OPTION}{name}": dimension for name, dimension in tune.items()}
        if not dimensions or not self.candidates:
            return ()
        points = strategy(self.strategy).points(self.candidates, seed)
        changes = (dict(zip(dimensions, point, strict=False)) for point in points)
        return tuple(
            tuple(sorted((path, dimensions[path].at(place)) for path, place in change.items())) for change in changes
        )
