"""Collect the faults of a source, so that one message names all of them."""

from __future__ import annotations

from collections import Counter, defaultdict

from harness.core.errors import DataError

PLACES = 3  # of one rule that are named
RULES = 5  # that are named


class Faults:
    """Faults of a source by the rule that they break, each rule with the number of faults and the first places.

    Args:
        name: of the data set and its source; the message starts with it.
        joint: between one place and the rule.
    """

    def __init__(self, name: str, joint: str = " ") -> None:
        self._name, self._joint = name, joint
        self._places: defaultdict[str, list[str]] = defaultdict(list)
        self._counts: Counter[str] = Counter()

    def add(self, place: str, rule: str) -> None:
        """Add a fault at a place; the rule that it breaks ends with the hint."""
        self._counts[rule] += 1
        if len(self._places[rule]) < PLACES:
            self._places[rule].append(place)

    def raise_any(self) -> None:
        """Raise a DataError with all faults, if there are any: one in a line, several below their number."""
        lines = []
        for rule, places in list(self._places.items())[:RULES]:
            more = self._counts[rule] - len(places)
            listed = ", ".join(places) + (f" and {more:,} more" if more else "")
            lines.append(f"{listed}{self._joint if len(places) == 1 else ': '}{rule}")
        if len(self._counts) > RULES:
            lines.append(f"and {sum(list(self._counts.values())[RULES:]):,} of other kinds")
        if len(lines) == 1:
            raise DataError(f"{self._name}: {lines[0]}")
        if lines:
            raise DataError("\n  ".join([f"{self._name}: {self._counts.total():,} faults", *lines]))
