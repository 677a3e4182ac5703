"""The first suite of a data set that `harness.init` writes: pre-processing, layers, flow and budgets for its shape."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.datasets import Splits
from harness.pipeline.data_remarks import FAR, farthest

NEAR = 10.0  # interquartile ranges from the median to the farthest value, up to which extremes may scale the others


def preprocessing(splits: Splits, names: Sequence[str]) -> dict[str, Any]:
    """Return the key of channels that their extremes would squeeze together, by name if they have names; or nothing."""
    chosen = ["scale" if far < NEAR else "standard" if far < FAR else "asinh" for far in farthest(splits)]
    if {*chosen} == {"scale"}:
        return {}
    by_name = {name: each for name, each in zip(names, chosen, strict=False) if each != "scale"}
    return {"preprocessing": chosen[0] if len({*chosen}) == 1 else by_name or chosen}


def sizes(splits: Splits) -> dict[str, Any]:
    """Return the kind of events, the levels of a flow that their sides admit, and the size of a batch."""
    return {
        "kind": "image" if len(splits.shape) == 3 else "sequence" if splits.shape[1] > 1 else "vector",
        "levels": 2 if all(size % 4 == 0 and size >= 8 for size in splits.shape[1:]) else 1,
        "batch": 64 if len(splits.train) >= 256 else 16,
    }


def suite_text(content: dict[str, Any], seconds: float = 1.0) -> str:
    """Return the file of a suite whose slowest layer takes so many seconds for a step of training."""
    environment = Environment(loader=PackageLoader(__package__), undefined=StrictUndefined, trim_blocks=True)
    environment.filters["flow_style"] = flow_style
    # A repetition trains 5 rows, and 8 candidates of each, whose halving takes 5 times a quarter of the steps.
    speed = (os.cpu_count() or 1) / (5 * (1 + 5 / 4) * seconds)
    return environment.get_template("first_suite.yaml.jinja").render(content, speed=speed)


def flow_style(value: Any) -> str:
    """Return a value as YAML in one line."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True).strip()
