"""What may be said of a claim, and how single comparisons add up to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.reporting.statistics.statistics import Difference
from harness.reporting.tables.cells import Line, shortened
from harness.reporting.tables.rendering import Table

Holds = Literal["holds", "holds in part", "does not hold", "undecided"]
HOLDS: Holds = "holds"
IN_PART: Holds = "holds in part"
FAILS: Holds = "does not hold"
UNDECIDED: Holds = "undecided"

Outcome = Literal["for", "against", "open"]

SUBJECT = "butterfly"  # the row that the claims are about


@dataclass(frozen=True)
class Verdict:
    """What a judge says.

    Attributes:
        holds: in a word or two.
        short: what was found, in one line.
        text: the numbers behind it.
        tables: of the judge's own.
    """

    holds: Holds
    short: str
    text: str
    tables: tuple[Table, ...] = ()


def of_outcomes(outcomes: Iterable[Outcome]) -> Holds:
    """Of comparisons all of which a claim needs: one that is open leaves it open, unless another one refutes it."""
    found = list(outcomes)
    if "against" in found:
        return IN_PART if "for" in found else FAILS
    return HOLDS if found and "open" not in found else UNDECIDED


def outcome_of(difference: Difference | None) -> Outcome:
    """Of (what the claim calls worse) - (what it calls better), both to be low: by the test where there are seeds
    enough for one, else by the interval; a single seed, or nothing to compare, leaves it open.
    """
    if difference is None:
        return "open"
    mean, low, high = difference.estimate.mean, difference.estimate.low, difference.estimate.high
    apart = low is not None and high is not None and low * high > 0
    told = apart if difference.p is None else difference.significant
    return "open" if not told else "for" if mean > 0 else "against"


def nothing_to_judge(lines: Sequence[Line]) -> Verdict:
    """Undecided, with the reasons why no trial has what the test needs."""
    reasons = dict.fromkeys(f"{line['status']}: {shortened(line.get('reason') or 'no value')}" for line in lines)
    return Verdict(
        UNDECIDED, "no trial has what the test needs", f"No trial has what the test needs ({'; '.join(reasons)})."
    )
