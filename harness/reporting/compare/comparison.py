"""Compare two runs of a suite: is a change larger than a threshold, and larger than noise?"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from harness.core import arguments
from harness.core.errors import UserError
from harness.core.settings import Flag
from harness.reporting.compare.measure import Measure
from harness.reporting.compare.pairs import Pair, Place, pairs
from harness.reporting.frame import Results, shortened_reason
from harness.reporting.origins import versions
from harness.reporting.statistics.statistics import LEAST_FOR_STUDENT, Difference, Estimate, interval_kind, judged
from harness.reporting.tables.cells import EMPTY, Notes
from harness.reporting.tables.rendering import Table, markdown

Verdict = Literal["worse", "better", "same", "not significant", "not comparable"]


class Thresholds(NamedTuple):
    """The largest changes that count as none: of a likelihood in its unit, of times and counts as a part."""

    likelihood: float = 0.01
    part: float = 0.05


def _thresholds(value: object) -> Thresholds:
    """Read "0.02" for likelihoods and "10%" for times and counts, either or both."""
    thresholds = Thresholds()
    for text in map(str, value if isinstance(value, (list, tuple)) else [value]):
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            raise ValueError(
                f"{text:.80}: expected a number of nats or bits per dimension such as 0.02, or a part of a time or "
                "count such as 10%"
            )
        changes = {"part": number / 100} if text.endswith("%") else {"likelihood": number}
        thresholds = thresholds._replace(**changes)
    return thresholds


@dataclass(frozen=True)
class PlaceComparison:
    """The comparison of one place, over all its repetitions."""

    pairs: tuple[Pair, ...]
    verdict: Verdict
    change: Difference | None  # over the pairs that are compared; None without any
    reasons: tuple[str, ...]  # why pairs cannot be compared, failures, and other differences


@dataclass(frozen=True, repr=False)
class Comparison:
    """The comparison of two runs."""

    thresholds: Thresholds
    places: Mapping[Place, PlaceComparison]  # in the order of the second run's plan
    versions: tuple[str, ...] = ()  # packages and processors in which the runs differ
    damaged: tuple[str, ...] = ()  # records that cannot be read, or that their weights contradict
    names: tuple[str, str] = ("A", "B")  # of the runs

    @property
    def counts(self) -> Counter[Verdict]:
        """The number of places by verdict."""
        return Counter(place.verdict for place in self.places.values())

    @property
    def worse(self) -> bool:
        """True if something became worse, or a record is damaged."""
        return bool(self.counts["worse"] or self.damaged)

    @property
    def same(self) -> bool:
        """True if everything could be compared, and nothing changed or is damaged."""
        return self.counts.keys() == {"same"} and not self.damaged

    @property
    def empty(self) -> bool:
        """True if nothing could be compared."""
        return not self.counts.keys() - {"not comparable"}

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        return f"<Comparison of {' and '.join(self.names)}: {verdicts}>"

    def _repr_markdown_(self) -> str:
        """Return the table as Markdown, which a notebook shows."""
        return markdown(comparison_table(self))


@arguments.checked
def compare(
    first: arguments.Place,
    second: arguments.Place,
    *,
    threshold: Annotated[Any, arguments.rule(_thresholds, str | Sequence[str])] = Thresholds(),  # noqa: B008
    other_code: Flag = False,
) -> Comparison:
    """Compare a run with an earlier one, trial by trial; in a notebook, the comparison is shown as its tables.

    Args:
        first: the folder or the archive of the earlier run.
        second: that of the later run.
        threshold: the largest changes that count as none: "0.02" for likelihoods, "10%" for times and parameters.
        other_code: also compare trials whose source differs, and report the differences.

    Raises:
        UserError: a folder without a run, or suites of different kinds.
    """
    runs = Results.read(first), Results.read(second)
    kinds = [run.plan.kind for run in runs]
    if kinds[0] != kinds[1]:
        raise UserError(
            f"{first} is of kind {kinds[0]}, {second} of kind {kinds[1]}: not comparable; give two runs of one suite"
        )
    groups: dict[Place, list[Pair]] = {}
    for pair in pairs(*runs, other_code):
        groups.setdefault(pair.place, []).append(pair)
    changes = {place: [pair.change for pair in group if pair.change is not None] for place, group in groups.items()}
    samples = {place: values for place, values in changes.items() if values and groups[place][0].measure.tested}
    tested = judged(samples, {place: _share(groups[place]) for place in samples})
    places = {place: _compare(group, tested.get(place), threshold) for place, group in groups.items()}
    damaged = [
        f"damaged in {name}: {why}" for name, run in zip("AB", runs, strict=True) for why in run.damaged.values()
    ]
    return Comparison(threshold, places, _surroundings(*runs), tuple(damaged), (str(first), str(second)))


def _compare(group: Sequence[Pair], tested: Difference | None, thresholds: Thresholds) -> PlaceComparison:
    faults = [pair.fault for pair in group if pair.fault is not None]
    reasons = [f"{pair.repeat + ': ' if len(group) > 1 else ''}{pair.obstacle}" for pair in group if pair.obstacle]
    reasons += [text for _, text in faults]
    reasons += [remark for pair in group for remark in pair.remarks if pair.obstacle is None]
    change, significant = (tested, _significant(tested)) if tested is not None else _joint(group)
    limit = thresholds.part if group[0].measure.relative else thresholds.likelihood
    verdict: Verdict = "not comparable"
    if any(worse for worse, _ in faults):
        verdict = "worse"
    elif change is not None and significant and abs(change.estimate.mean) > limit:
        verdict = "worse" if change.estimate.mean > 0 else "better"
    elif faults:
        verdict = "better"
    elif change is not None:
        verdict = "same" if abs(change.estimate.mean) <= limit else "not significant"
    return PlaceComparison(tuple(group), verdict, change, tuple(dict.fromkeys(reasons)))


def _share(group: Sequence[Pair]) -> float | None:
    """Return the mean test share of the pairs that are compared; None of seeds."""
    rows = [pair.rows[1] for pair in group if pair.change is not None]
    shares = [share for row in rows if row is not None and (share := group[0].measure.share(row)) is not None]
    return statistics.fmean(shares) if shares else None


def _significant(change: Difference) -> bool:
    """Return the outcome of Holm's correction; of one or two seeds, whether all changed in the same direction."""
    low, high = change.estimate.low, change.estimate.high
    if len(change.values) >= LEAST_FOR_STUDENT:
        return change.separated
    return low is None or high is None or low > 0 or high < 0


def _joint(group: Sequence[Pair]) -> tuple[Difference | None, bool]:
    """Return the joint change of repetitions without a test, and whether it exceeds the spread of both runs."""
    changes = [(pair.change, pair.rows) for pair in group if pair.change is not None]
    if not changes:
        return None, True
    spread = group[0].measure.spread
    if spread is None:
        mean, apart = statistics.fmean(change for change, _ in changes), True
    else:
        before, after = (spread([rows[side] for _, rows in changes]) for side in (0, 1))
        mean, apart = after[1] / before[1] - 1, after[2] < before[0] or after[0] > before[2]
    return Difference(Estimate(mean, None, None, len(changes))), apart


def _surroundings(first: Results, second: Results) -> tuple[str, ...]:
    """Return the packages and processors in which the runs differ, as texts."""
    before, after = (
        {name: "/".join(sorted(counts)) for name, counts in versions(run.records.values()).items()}
        for run in (first, second)
    )
    both = [name for name in before if name in after]
    return tuple(f"{name}: {before[name]} in A, {after[name]} in B" for name in both if before[name] != after[name])


def comparison_table(comparison: Comparison) -> Table:
    """Return the table of verdicts."""
    notes, (first, second) = Notes(), comparison.names
    rows = []
    for place, outcome in comparison.places.items():
        mark = notes.mark("; ".join(shortened_reason(reason) for reason in outcome.reasons)) if outcome.reasons else ""
        measure = outcome.pairs[0].measure
        change = EMPTY if outcome.change is None else _change(measure, outcome.change)
        rows.append((*place, *_joint_texts(outcome.pairs), change, outcome.verdict + mark))
    changes = [outcome.change for outcome in comparison.places.values() if outcome.change]
    kind = interval_kind(changes)
    brackets = f" [{kind} 95 % interval]" if kind else ""
    words = "seeds or repetitions" if any(change.estimate.share is not None for change in changes) else "seeds"
    likelihood, part = comparison.thresholds
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in comparison.counts.items())
    caption = (
        f"A: {first}. B: {second}. {verdicts}. Less is better. A change counts beyond {likelihood:g} nats or bits per "
        f"dimension, of times and parameters beyond {100 * part:g} %. Likelihoods: mean difference B - A{brackets} "
        f"over paired {words}; from {LEAST_FOR_STUDENT} {words} on it must pass a paired t test after Holm's "
        f"correction for all rows here, below that all {words} must change in the same direction. Times: medians, a "
        "change is significant where their spreads do not overlap."
    )
    remarks = (*notes.numbered(), *comparison.damaged, *comparison.versions)
    return Table("comparison", caption, ("what", "layer", "A", "B", "change", "verdict"), tuple(rows), remarks)


def _joint_texts(pairs: Sequence[Pair]) -> list[str]:
    """Return the joint values of A and B over the pairs that are compared or, without any, over all."""
    compared = [pair for pair in pairs if pair.change is not None] or pairs
    measure, texts = pairs[0].measure, []
    for rows in zip(*(pair.rows for pair in compared), strict=True):
        ok = [row for row in rows if row is not None and row.status == "ok"]
        valued = [row for row in ok if measure.value is not None and measure.value(row) is not None]
        texts.append(measure.text(valued) if valued else EMPTY)
    return texts


def _change(measure: Measure, change: Difference) -> str:
    return f"{100 * change.estimate.mean:+.1f} %" if measure.relative else change.text()
