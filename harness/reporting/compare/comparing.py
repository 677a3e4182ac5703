"""Two runs held against each other, trial by trial: what changed, and is it more than a threshold and than chance?"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from harness.core.errors import UserError
from harness.kinds.runtime.points import merged
from harness.reporting.compare.matching import Pair, Place, Run, matched
from harness.reporting.frame import Row, rows_of, typed_frame
from harness.reporting.statistics.statistics import Difference, Estimate, judged

Verdict = Literal["worse", "better", "same", "not told apart", "not comparable"]


class Thresholds(NamedTuple):
    """How large a change must be to count: of a likelihood in its unit, of times and counts as a part."""

    likelihood: float = 0.01
    part: float = 0.05

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Thresholds:
        """Of "0.02" for likelihoods and "10%" for times and counts, either or both."""
        found = cls()
        for text in texts:
            try:
                number = float(text.removesuffix("%"))
            except ValueError:
                number = -1.0
            if not 0 <= number < float("inf"):
                raise UserError(
                    f"--threshold {text}: expected a number of nats or bits per dimension such as 0.02, or a part of a "
                    "time or count such as 10%"
                )
            found = found._replace(part=number / 100) if text.endswith("%") else found._replace(likelihood=number)
        return found


@dataclass(frozen=True)
class Finding:
    """What became of one place.

    Attributes:
        pairs: its trials.
        verdict: of them together.
        change: over the trials that can be compared; None where there are none.
        reasons: why they cannot be compared, or what failed, and what else differs.
    """

    pairs: tuple[Pair, ...]
    verdict: Verdict
    change: Difference | None
    reasons: tuple[str, ...]


@dataclass
class Comparison:
    """Everything found, by place in the order of the second run's plan.

    Attributes:
        versions: package or machine in which the compared trials' surroundings differ.
    """

    thresholds: Thresholds
    findings: dict[Place, Finding] = field(default_factory=dict)
    versions: tuple[str, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether there is anything to go by."""
        return any(one.verdict != "not comparable" for one in self.findings.values())

    @property
    def worse(self) -> bool:
        """Whether anything became worse."""
        return any(one.verdict == "worse" for one in self.findings.values())


def compare(first: Path, second: Path, thresholds: Thresholds, other_code: bool = False) -> Comparison:
    """Hold the second run against the first.

    Args:
        first, second: OUT/<suite>, with plan.json and records/.
        thresholds: changes up to these are none.
        other_code: compare trials whose source differs, as that is what was changed; it is said which.

    Raises:
        UserError: a folder without a plan, an unreadable record, or suites of different kinds.
    """
    one, other = Run.read(first), Run.read(second)
    if one.plan.kind != other.plan.kind:
        kinds = f"{first} is of kind {one.plan.kind}, {second} of kind {other.plan.kind}"
        raise UserError(f"{kinds}: nothing to compare; give two runs of one suite")
    places: dict[Place, list[Pair]] = {}
    for pair in matched(one, other, other_code):
        places.setdefault(pair.place, []).append(pair)
    tested = judged(
        {
            place: changes_found
            for place, pairs in places.items()
            if pairs[0].kind == "density" and (changes_found := _changes(pairs))
        }
    )
    timed = _timed(places)
    findings = {place: _finding(pairs, tested, timed, thresholds) for place, pairs in places.items()}
    found = Comparison(thresholds, findings)
    found.versions = _surroundings(one, other)
    return found


def _changes(pairs: Sequence[Pair]) -> list[float]:
    return [pair.change for pair in pairs if pair.change is not None]


def _timed(places: Mapping[Place, Sequence[Pair]]) -> dict[Place, tuple[Row, Row]]:
    """Return the points of both runs by place, of the timed cases that are compared."""
    names, sides = list(places), []
    for side in (0, 1):
        lines = [
            {**(pair.sides[side] or {}), "sweep": str(number)}  # two claims may have sweeps of one name
            for number, pairs in enumerate(places.values())
            for pair in pairs
            if pair.kind == "runtime" and pair.change is not None
        ]
        points = rows_of(merged(typed_frame(lines), threads=1))
        sides.append({names[int(point.sweep)]: point for point in points})
    return {place: (first, sides[1][place]) for place, first in sides[0].items()}


def _finding(
    pairs: Sequence[Pair],
    tested: Mapping[Place, Difference],
    timed: Mapping[Place, tuple[Row, Row]],
    thresholds: Thresholds,
) -> Finding:
    faults = [pair.fault for pair in pairs if pair.fault is not None]
    reasons = [f"{pair.member + ': ' if len(pairs) > 1 else ''}{pair.obstacle}" for pair in pairs if pair.obstacle]
    reasons += [text for _, text in faults]
    reasons += [remark for pair in pairs for remark in pair.remarks if pair.obstacle is None]
    kind, found = pairs[0].kind, _changes(pairs)
    change, told = None, True
    if found and kind == "density":
        change = tested[pairs[0].place]
        told = _told(change)
    elif found:
        change, told = _of_points(pairs, timed)
    limit = thresholds.likelihood if kind == "density" else thresholds.part
    verdict: Verdict = "not comparable"
    if any(worse for worse, _ in faults):
        verdict = "worse"
    elif change is not None:
        mean = change.estimate.mean
        verdict = "same" if abs(mean) <= limit else "not told apart" if not told else "worse" if mean > 0 else "better"
    if faults and verdict in ("not comparable", "same", "not told apart"):
        verdict = "better"
    return Finding(tuple(pairs), verdict, change, tuple(dict.fromkeys(reasons)))


def _told(change: Difference) -> bool:
    """By the test where there are seeds enough for one, else by the interval; of one seed there is neither."""
    found = change.estimate
    if change.p is not None:
        return change.significant
    return found.low is None or found.high is None or found.low > 0 or found.high < 0


def _of_points(pairs: Sequence[Pair], timed: Mapping[Place, tuple[Row, Row]]) -> tuple[Difference, bool]:
    """The change of one timed case or count, and whether it is more than the spread of both.

    The spread of a time is the interquartile range of its samples, or what lies between processes if that is wider.
    """
    good = [pair for pair in pairs if pair.change is not None]
    if pairs[0].kind != "runtime":
        return Difference(Estimate(statistics.fmean(_changes(good)), None, None, len(good))), True
    one, other = timed[pairs[0].place]
    change = Estimate(other.median_ms / one.median_ms - 1, None, None, len(good))
    return Difference(change), bool(other.high < one.low or other.low > one.high)


def _surroundings(first: Run, second: Run) -> tuple[str, ...]:
    """Packages and processors in which the two runs differ, each once."""

    def facts(run: Run) -> dict[str, str]:
        found: dict[str, set[str]] = {}
        for record in run.records.values():
            about = record.environment
            own = {**about.get("versions", {}), "processor": about.get("cpu"), "kernels": about.get("backend")}
            for name, value in own.items():
                found.setdefault(name, set()).add(str(value))
        return {name: "/".join(sorted(values)) for name, values in found.items()}

    mine, theirs = facts(first), facts(second)
    return tuple(
        f"{name}: {mine[name]} in A, {theirs[name]} in B"
        for name in mine
        if name in theirs and mine[name] != theirs[name]
    )
