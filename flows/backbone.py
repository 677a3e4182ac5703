"""The interface of the shared backbones, each of which is one file in flows/backbones/."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch import nn

from flows.protocol import Flow, Shape

MakeLayer = Callable[[Shape], nn.Module]


class Backbone(Flow):
    """A flow around any linear layer, built by `cls(shape, make_layer, make_mixer, seed=, order=, **settings)`.

    The settings are its other keywords, among those that `flow:` of a suite has; a suite may state no others.
    Every weight is drawn under (seed, path), so that the backbone is equal whichever layer is tested.

    Attributes:
        mixed: whether a mixer precedes each layer that does not replace it; if not, only where a row keeps the mixer.
        least_steps: the smallest number of steps that it takes.
        capacities: setting that is a capacity -> name of the axis of figures.
        title: the beginning of its description, such as "Glow with ".
    """

    mixed: ClassVar[bool] = True
    least_steps: ClassVar[int] = 1
    capacities: ClassVar[Mapping[str, str]] = {}
    title: ClassVar[str] = ""

    @classmethod
    def settings(cls) -> list[str]:
        """Return the names of its settings."""
        parameters = inspect.signature(cls.__init__).parameters.values()
        return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in ("seed", "order")]

    @classmethod
    @abstractmethod
    def layer_shapes(cls, shape: Shape, levels: int) -> list[Shape]:
        """Return the event shapes that layers meet; raise UnsupportedEvent if it cannot serve events of `shape`."""

    @classmethod
    @abstractmethod
    def described(cls, settings: Any) -> str:
        """Return its size and its settings (attributes of `settings`) as text after the title, parts after ", "."""

    @classmethod
    def control(cls, layer: str, options: Mapping[str, Any], keep_mixer: bool) -> str | None:
        """Return the description of a row over which the leads of others are counted; None for any other row."""
        return "two 1x1 convolutions in each step" if layer == "conv1x1" and keep_mixer else None
