"""Training curves: values that a record holds by step or by seconds of training."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pandas as pd

from harness.core.records import Record
from harness.reporting.frame import Results

Curve = list[tuple[float, float]]


def curve(record: Record, name: str, axis: str = "step") -> Curve:
    """Return the finite points (step or seconds, value) of one curve of a record."""
    pairs = zip(record.curves.get(axis, []), record.curves.get(name, []), strict=False)
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def average(seeds: Sequence[Curve]) -> Curve:
    """Return the mean over seeds at every step that one of them has; those that stopped early count up to there."""
    by_step: dict[float, list[float]] = {}
    for points in seeds:
        for step, value in points:
            by_step.setdefault(step, []).append(value)
    return [(step, statistics.fmean(by_step[step])) for step in sorted(by_step)]


def trained(results: Results, name: str) -> pd.DataFrame:
    """Return the rows of density trials whose record has this curve."""
    frame = results.of_kind("density")
    return frame[[trial in results.records and bool(curve(results.records[trial], name)) for trial in frame["id"]]]
