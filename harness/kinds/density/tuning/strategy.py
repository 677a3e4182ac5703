"""Strategies of a tuning: how candidates are drawn from the space, and which of them run.

A strategy is one file in harness/kinds/density/tuning/strategies/ with a subclass of `Strategy`; the name of the file
is its name in suites, `tuning: {strategy: sobol}`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import ClassVar, TypeVar

from harness.core.discovery import class_in, names_in
from harness.core.errors import nearest
from harness.core.records import Record, verdict
from harness.core.trial import Trial
from harness.kinds.density.tuning import strategies

MOST_SETTINGS = 16  # tuned together

Candidate = TypeVar("Candidate", bound=Trial)


class Strategy(ABC):
    """Draw the candidates of a tuning, the same for every layer; validation chooses among those of the last rung.

    Attributes:
        rungs: the share of the training steps that a candidate has on each rung; the last is 1. Each rung trains
            from the beginning.
        remark: for captions, which candidates end before the last rung; empty if all run in one.
    """

    rungs: ClassVar[Sequence[Fraction]] = (Fraction(1),)
    remark: ClassVar[str] = ""

    @abstractmethod
    def points(self, number: int, seed: int) -> Sequence[Sequence[float]]:
        """Return `number` points in [0, 1), each of `MOST_SETTINGS` coordinates.

        More points begin with the fewer, and each coordinate is a setting, so that layers agree in shared settings.
        """

    def due(self, rungs: Sequence[Sequence[Candidate]], records: Mapping[str, Record]) -> Sequence[Candidate]:
        """Return the candidates that run, as far as the records (by id) tell; by default all of every rung.

        Args:
            rungs: the trials of each rung, by number of the candidate.
        """
        return [candidate for candidates in rungs for candidate in candidates]


def validation(record: Record | None) -> float | None:
    """Return the validation value of a candidate; None without a record, and if it has no valid likelihood."""
    value: float | None = record.rows[0].get("validation") if record is not None and verdict(record) == "ok" else None
    return value


def strategy(name: str) -> Strategy:
    """Return the strategy of a name; raise ValueError for an unknown name."""
    names = names_in(strategies)
    if name not in names:
        raise ValueError(f"there is no strategy {name!r}; {nearest(name, names)}")
    return class_in(strategies, name, Strategy)()  # type: ignore[type-abstract]
