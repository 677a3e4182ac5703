"""Replay successive halving, with several numbers of steps and shares, on tunings of which every candidate ran.

`python docs/extensions/halving_replay.py reports/*/records.zip` prints the table in tuning.md. The first steps of a
candidate are those of a shorter training, so its curve has the validation value at which halving would have decided. A
tuning counts where its curves have a value at exactly that step.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path

from tabulate import tabulate

from harness.core.records import Record
from harness.kinds.density.trial import CandidateTrial, DensityTrial
from harness.kinds.density.tuning.strategies.halving import Halving
from harness.kinds.density.tuning.strategy import validation
from harness.reporting.frame import Results

FIRST = (Fraction(1, 2), Fraction(1, 3), Fraction(1, 4), Fraction(1, 6))
KEPT = (Fraction(1, 2), Fraction(1, 3), Fraction(1, 4))


@dataclass(frozen=True)
class Tuning:
    """The candidates of a layer on a data set, of which at least one has a valid likelihood."""

    candidates: Sequence[CandidateTrial]
    records: Mapping[str, Record]

    @cached_property
    def short(self) -> list[CandidateTrial]:
        """The trials of the first rung."""
        return [CandidateTrial(**candidate.model_dump() | {"short": True}) for candidate in self.candidates]

    def values(self, candidates: Sequence[CandidateTrial]) -> list[tuple[float, int]]:
        """Return the validation values of candidates, with their numbers, in ascending order."""
        values = [(validation(self.records[candidate.id]), candidate.candidate) for candidate in candidates]
        return sorted((value, number) for value, number in values if value is not None)


@dataclass(frozen=True)
class Outcome:
    """The choice of a rule, compared with that among all candidates.

    Attributes:
        loss: by which its validation value is higher, as a share of the lead of the best over the median candidate;
            None if no candidate is left.
        steps: share of the training steps of all candidates.
    """

    loss: float | None
    steps: Fraction


def tunings(paths: Sequence[Path]) -> Iterator[Tuning]:
    """Yield the complete tunings of archives, or of folders of runs, in which all candidates run."""
    for path in paths:
        results = Results.read(path)
        trials = [
            trial for trial in results.plan.trials if isinstance(trial, DensityTrial) and trial.tuning is not None
        ]
        for candidates in dict.fromkeys(trial.candidates for trial in trials):
            records = {c.id: results.records[c.id] for c in candidates if c.id in results.records}
            tuning = Tuning(candidates, records)
            if len(records) == len(candidates) and not any(c.short for c in candidates) and tuning.values(candidates):
                yield tuning


def replay(tuning: Tuning, first: Fraction, kept: Fraction) -> Outcome | None:
    """Return the outcome of halving after a share `first` of the steps; None if the curves have no value there."""
    rule = type("Rule", (Halving,), {"rungs": (first, Fraction(1)), "kept": kept})()
    steps = tuning.candidates[0].steps * first
    if steps.denominator > 1 or steps % tuning.candidates[0].training.evaluate_every:
        return None
    shortened = {
        short.id: _until(tuning.records[candidate.id], int(steps))
        for short, candidate in zip(tuning.short, tuning.candidates, strict=True)
    }
    due = [c for c in rule.due((tuning.short, tuning.candidates), {**tuning.records, **shortened}) if not c.short]
    spent = first + Fraction(len(due), len(tuning.candidates))
    best, left = tuning.values(tuning.candidates), tuning.values(due)
    lowest, middle = best[0][0], statistics.median(value for value, _ in best)
    if not left:
        return Outcome(None, spent)
    return Outcome(0.0 if left[0] == best[0] else (left[0][0] - lowest) / (middle - lowest), spent)


def _until(record: Record, steps: int) -> Record:
    """Return the record of the first steps of a training: without a value if it diverged by then."""
    curves = record.curves
    values = [
        v for step, v in zip(curves["step"], curves["validation"], strict=True) if step is not None and step <= steps
    ]
    if not values or None in values:
        return replace(record, status="diverged", reason="a loss was not finite", rows=[])
    return replace(
        record, status="ok", reason=None, rows=[{"validation": min(value for value in values if value)}], audit=None
    )


def table(complete: Sequence[Tuning]) -> str:
    """Return a line for each rule."""
    lines = []
    for first in FIRST:
        for kept in KEPT:
            outcomes = [outcome for tuning in complete if (outcome := replay(tuning, first, kept)) is not None]
            if not outcomes:
                continue
            same = sum(outcome.loss == 0 for outcome in outcomes)
            losses = [outcome.loss for outcome in outcomes if outcome.loss]
            none = sum(outcome.loss is None for outcome in outcomes)
            saved = 1 - statistics.fmean(outcome.steps for outcome in outcomes)
            worst = "no choice" if none else f"{statistics.median(losses):.0%}, {max(losses):.0%}" if losses else "none"
            lines.append(
                [
                    str(first),
                    str(kept),
                    f"{same} of {len(outcomes)}",
                    f"{same / len(outcomes):.1%}",
                    worst,
                    f"{saved:.0%}",
                ]
            )
    header = ["steps of the first rung", "kept", "same choice", "share", "lost otherwise: median, most", "steps saved"]
    return tabulate(lines, header, tablefmt="github", disable_numparse=True)


if __name__ == "__main__":
    complete = list(tunings([Path(argument) for argument in sys.argv[1:]]))
    print(f"{len(complete)} tunings, {sum(len(tuning.candidates) for tuning in complete)} candidates")
    print(table(complete))
