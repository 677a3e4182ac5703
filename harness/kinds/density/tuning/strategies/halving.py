"""Successive halving of the points of a scrambled Sobol' sequence (Jamieson and Talwalkar, AISTATS 2016).

All candidates train for a quarter of the steps. The better half, by validation, trains again for all of them. So a
layer has as many candidates as under `sobol`, and about three quarters of their training steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import ClassVar

from harness.core.records import Record
from harness.kinds.density.tuning.strategies.sobol import Sobol
from harness.kinds.density.tuning.strategy import Candidate, validation


class Halving(Sobol):
    """Quasi-random candidates, of which the better half runs to the end."""

    rungs: ClassVar[Sequence[Fraction]] = (Fraction(1, 4), Fraction(1))
    kept: ClassVar[Fraction] = Fraction(1, 2)
    remark: ClassVar[str] = "the worse half ended after a quarter of the steps"

    def due(self, rungs: Sequence[Sequence[Candidate]], records: Mapping[str, Record]) -> Sequence[Candidate]:
        """Return the candidates of a rung that is complete, then those that validation keeps for the next one.

        The number kept depends on the number of candidates alone. A candidate without a valid likelihood is never kept;
        of equal values the one with the lower number is.
        """
        due: list[Candidate] = []
        numbers: Sequence[int] = range(len(rungs[0]))
        for candidates in rungs:
            running = {number: candidates[number] for number in numbers}
            due += running.values()
            if any(candidate.id not in records for candidate in running.values()):
                break
            values = {number: validation(records[candidate.id]) for number, candidate in running.items()}
            ranked = sorted((value, number) for number, value in values.items() if value is not None)
            most = math.ceil(len(numbers) * self.kept)
            numbers = sorted(number for _, number in ranked[:most])
        return due
