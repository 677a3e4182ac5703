"""The comparison of two results of one kind of trial: its measure, and the rule that separates a change from noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from harness.core.records import Record
from harness.core.trial import IDENTITY, ORIGIN, OUTCOME, Trial, sibling, trial_class

Row = Mapping[str, Any]
"""One row of a record with the fields of its trial, its status and its reason."""

UNCOMPARED = IDENTITY | OUTCOME | ORIGIN


class Spread(NamedTuple):
    """A value with the range in which repetitions of its measurement lie."""

    value: float
    low: float
    high: float


class Measure:
    """The comparison of results of one kind.

    This class serves kinds without a random result: any column that differs by more than rounding is a fault. A kind
    that measures something has a subclass, whose values are judged instead.

    Attributes:
        column: the measure.
        relative: whether changes are a part of the first value, rather than a difference.
        tested: whether changes over several repetitions are judged by the paired test of `statistics.judged`.
    """

    column: ClassVar[str] = ""
    relative: ClassVar[bool] = True
    tested: ClassVar[bool] = False

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def value(self, row: Row) -> float | None:
        """Return the measure of a row; None where there is none."""
        return row.get(self.column)

    def change(self, first: Row, second: Row) -> float | None:
        """Return the change from the first row to the second, as a part of the first if `relative`; or None."""
        if type(self) is Measure:
            return 0.0
        before, after = self.value(first), self.value(second)
        if before is None or after is None or (self.relative and before == 0):
            return None
        return after / before - 1 if self.relative else after - before

    def doubt(self, row: Row) -> str | None:
        """Return why the value of a row must not be compared; None if it may."""
        return None

    def obstacle(self, first: tuple[Row, Record], second: tuple[Row, Record]) -> str | None:
        """Return why two rows cannot be compared although data and source are the same; None if they can."""
        return None

    def faults(self, first: Row, second: Row) -> list[str]:
        """Return the columns in which rows differ that must agree, as texts; none of a measure that is judged."""
        names = [name for name in trial_class(self.kind).columns if name not in UNCOMPARED]
        return [
            f"{name} is {first.get(name)} in A, {second.get(name)} in B"
            for name in names
            if type(self) is Measure and _differ(first.get(name), second.get(name))
        ]

    def remarks(self, first: Row, second: Row) -> list[str]:
        """Return differences beside the settings and the source, which do not prevent the comparison."""
        return []

    def spread(self, rows: Sequence[Row]) -> Spread | None:
        """Return the joint value of several repetitions with its spread; None without a spread."""
        return None

    def text(self, values: Sequence[float], rows: Sequence[Row]) -> str:
        """Return the joint value of several repetitions as text."""
        return ""


def measure_of(trial: Trial) -> Measure:
    """Return the measure of a kind of trial: `measure` in compare.py beside its class, else that of exact results."""
    module = sibling(type(trial), "compare")
    return module.measure if module is not None and module.measure.kind == trial.kind else Measure(trial.kind)


def _differ(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return not math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-9)
    return bool(first != second)
