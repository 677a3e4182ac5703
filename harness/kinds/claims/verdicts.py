"""Verdicts on a claim, and how single comparisons add up to one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from harness.reporting.frame import Results, shortened_reason
from harness.reporting.statistics.statistics import Difference
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
    """The verdict of a judge."""

    holds: Holds
    short: str  # the finding, in one line
    text: str  # the numbers behind it
    tables: tuple[Table, ...] = ()


def of_outcomes(outcomes: Iterable[Outcome]) -> Holds:
    """Return the verdict of comparisons that a claim needs: an open one leaves it open, unless another refutes it."""
    seen = set(outcomes)
    if "against" in seen:
        return IN_PART if "for" in seen else FAILS
    return HOLDS if seen == {"for"} else UNDECIDED


def outcome_of(difference: Difference | None) -> Outcome:
    """Return the outcome of (what the claim calls worse) - (what it calls better), of measures where low is better.

    Holm's correction for all comparisons decides; one or two seeds, or nothing to compare, leave it open.
    """
    if difference is None or not difference.separated:
        return "open"
    return "for" if difference.estimate.mean > 0 else "against"


def nothing_to_judge(results: Results) -> Verdict:
    """Return "undecided", with the reasons why no trial has what the test needs."""
    frame = results.frame
    reasons = (frame["status"] + ": " + frame["reason"].fillna("no value").map(shortened_reason)).unique()
    return Verdict(
        UNDECIDED, "no trial has what the test needs", f"No trial has what the test needs ({'; '.join(reasons)})."
    )
