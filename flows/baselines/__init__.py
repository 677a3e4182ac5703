"""The baselines of the density table: whole flows of other papers, in the interface of the backbone.

Each is a `flows.protocol.Flow`, built by `cls(shape, levels=, steps=, width=, seed=, **options)`; some are references
that are no flow (`flows.density`). A flow is imported on request only.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, cast

from flows.protocol import Flow
from layers.base import check_whole

BASELINES = {
    "maf": "flows.baselines.maf:MAF",
    "realnvp": "flows.baselines.realnvp:RealNVP",
    "iresnet": "flows.baselines.residual:IResNet",
    "residual_flow": "flows.baselines.residual:ResidualFlow",
    "idensenet": "flows.baselines.residual:IDenseNet",
    "gaussian": "flows.baselines.mixture:Gaussian",
    "mixture": "flows.baselines.mixture:Mixture",
}
"""Name in a suite -> module:class, in the order of the table."""

SIZES = ("shape", "levels", "steps", "width", "seed")
"""The size arguments that every baseline takes from the suite's `flow` settings; its other arguments are options."""


def find_baseline(name: str) -> type[Flow]:
    """Return the baseline of this name, or a flow of another package, package.module:CLASS.

    Raises:
        KeyError: the baseline does not exist.
    """
    module, _, cls = (name if ":" in name else BASELINES[name]).partition(":")
    return cast(type[Flow], getattr(importlib.import_module(module), cls))


def build_baseline(
    name: str, shape: tuple[int, ...], levels: int, steps: int, width: int, seed: int, options: Mapping[str, Any]
) -> Flow:
    """Build a baseline; its class defines the meaning of levels, steps and width.

    Raises:
        UnsupportedEvent: it cannot serve the shape.
        ValueError: an option or a size out of its range.
    """
    for size, value in {"levels": levels, "steps": steps, "width": width}.items():
        check_whole(name, size, value)
    cls: Any = find_baseline(name)
    flow: Flow = cls(shape, levels=levels, steps=steps, width=width, seed=seed, **options)
    return flow


def baseline_options(cls: type[Flow]) -> dict[str, inspect.Parameter]:
    """Return the options of a baseline: the keyword parameters of its constructor that are not its size."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in SIZES}
