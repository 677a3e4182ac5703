"""The tables of a report: pure functions of the plan and the lines of its results.

An entry is set in bold only where a test tells it from all others of its column (see
`harness.reporting.statistics.statistics`): with a handful of seeds a mean and its interval is all there is to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harness.core.kinds import kind_of
from harness.core.records import AUDIT_FAILED
from harness.reporting.tables.cells import Line
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan


def tables(plan: Plan, lines: Sequence[Line]) -> list[Table]:
    """Every table of a plan.

    Args:
        plan: rows, columns, published numbers.
        lines: of `results.plan_lines`.
    """
    return kind_of(plan.kind).tables(plan, lines)


def worst_statuses(lines: Iterable[Line]) -> dict[str, str]:
    """Status of each trial by id; a trial of several lines has the worst of theirs."""
    worst: dict[str, str] = {}
    for line in lines:
        status = line["status"]
        if status == "ok" and line.get("audit") == "failed":
            status = AUDIT_FAILED
        known = worst.setdefault(line["id"], status)
        if known == "ok" or (known == "unsupported" and status != "ok"):
            worst[line["id"]] = status
    return worst


def status_line(lines: Iterable[Line]) -> str:
    """How many trials ended how: "45 trials: 44 ok, 1 diverged"."""
    counts = Counter(worst_statuses(lines).values())
    total = counts.total()
    parts = [f"{counts.pop('ok', 0)} ok", *(f"{count} {status}" for status, count in sorted(counts.items()))]
    return f"{total} trial{'s' if total != 1 else ''}: {', '.join(parts)}"
