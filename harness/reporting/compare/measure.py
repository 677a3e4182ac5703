"""The comparison of two results of one kind of trial: its measure, and the rule that separates a change from noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.reporting.frame import Row

Spread = tuple[float, float, float]
"""The low end, the joint value and the high end of repeated measurements."""


@dataclass(frozen=True)
class Measure:
    """The comparison of results of one kind; a row has None where it has no value.

    Attributes:
        value: the measure of a row; None: every column must agree but for rounding.
        text: the joint value of several rows, as text.
        relative: whether changes are a part of the first value, rather than a difference.
        tested: whether changes over several repetitions are judged by the paired test of `statistics.judged`.
        spread: the joint value of several repetitions with its ends; None: any change exceeds the spread.
        share: the test share of a row by repetition, for the test; None of a row by seed.
        doubt: why the value of a row must not be compared; None if it may.
        obstacle: why two rows cannot be compared although data and source are the same; None if they can.
        remarks: differences beside the settings and the source, which do not prevent the comparison.
    """

    value: Callable[[Row], float | None] | None = None
    text: Callable[[Sequence[Row]], str] = lambda rows: ""
    relative: bool = True
    tested: bool = False
    spread: Callable[[Sequence[Row]], Spread] | None = None
    share: Callable[[Row], float | None] = lambda row: None
    doubt: Callable[[Row], str | None] = lambda row: None
    obstacle: Callable[[Row, Row], str | None] = lambda first, second: None
    remarks: Callable[[Row, Row], list[str]] = lambda first, second: []

    def change(self, first: Row, second: Row) -> float | None:
        """Return the change from the first row to the second, as a part of the first if `relative`; or None."""
        if self.value is None:
            return 0.0
        before, after = self.value(first), self.value(second)
        if before is None or after is None or (self.relative and before == 0):
            return None
        return after / before - 1 if self.relative else after - before


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of nested settings."""
    if name.endswith("options") and isinstance(value, list):
        value = dict(value)
    if not isinstance(value, dict):
        yield name, value
        return
    for key, item in value.items():
        yield from flat(item, f"{name}.{key}" if name else key)


def difference(name: str, first: Any, second: Any) -> str:
    """Return the name of a setting with both of its values."""
    one, other = (f"a list of {len(value)}" if isinstance(value, list) else value for value in (first, second))
    return f"{name} ({one} and {other})"
