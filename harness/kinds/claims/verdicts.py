"""Verdicts on a claim, and how single comparisons add up to one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.reporting.frame import Results, shortened_reason
from harness.reporting.statistics.statistics import Difference
from harness.reporting.tables.rendering import Table

Holds = Literal["holds", "holds in part", "does not hold", "undecided"]
Outcome = Literal["for", "against", "open"]

SUBJECT = "butterfly"  # the row that the claims are about
FEW = 4  # comparisons whose values the verdict names


@dataclass(frozen=True)
class Verdict:
    """The verdict of a judge."""

    holds: Holds
    short: str  # the finding, in one line
    text: str  # the numbers behind it
    tables: tuple[Table, ...] = ()


Comparison = tuple[Outcome, tuple[str, ...]]
"""The outcome of a comparison that a claim needs, and the cells of its line in a table."""


def compared(
    results: Results, caption: str, header: tuple[str, ...], comparisons: Sequence[Comparison], words: int = 1
) -> Verdict | None:
    """Return the verdict of comparisons, with a table of them; None without any.

    Args:
        header: of the cells of a comparison, of which the first `words` are text and the last is its value.
    """
    if not comparisons:
        return None
    outcomes = [outcome for outcome, _ in comparisons]
    text = counts_text(outcomes)
    if len(comparisons) <= FEW:
        values = (f"{cells[-1].partition(' ')[0]} ({', '.join(cells[:words])})" for _, cells in comparisons)
        text += f"; {header[-1]}: {', '.join(values)}"
    rows = tuple((*cells, outcome) for outcome, cells in comparisons)
    words_at = frozenset({*range(1, words), len(header)})
    table = Table(f"{results.plan.suite}-comparisons", caption, (*header, "the claim"), rows, words=words_at)
    return Verdict(of_outcomes(outcomes), text, f"It {text}.", (table,))


def counts_text(outcomes: Sequence[Outcome]) -> str:
    """Return in how many comparisons a claim holds: "holds in 3 of 4 comparisons, not in 1"."""
    holds, fails, undecided = (outcomes.count(kind) for kind in ("for", "against", "open"))
    text = f"holds in {holds} of {len(outcomes)} comparisons" + f", not in {fails}" * bool(fails)
    return text + f", undecided in {undecided}" * bool(undecided)


def of_outcomes(outcomes: Iterable[Outcome]) -> Holds:
    """Return the verdict of comparisons that a claim needs: an open one leaves it open, unless another refutes it."""
    seen = set(outcomes)
    if "against" in seen:
        return "holds in part" if "for" in seen else "does not hold"
    return "holds" if seen == {"for"} else "undecided"


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
    short = "no trial has what the test needs"
    return Verdict("undecided", short, f"No trial has what the test needs ({'; '.join(reasons)}).")
