"""Compare likelihoods by paired differences, in the unit of the data; an invalid likelihood is a failure."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from harness.kinds.density.likelihoods import BELOW_FLOOR, UNITS
from harness.reporting.compare.measure import Measure, difference
from harness.reporting.frame import Row, shortened_reason


def value(row: Row) -> float | None:
    """Return the likelihood in its unit."""
    likelihood: float | None = getattr(row, row.unit) if row.unit else None
    return likelihood


def text(rows: Sequence[Row]) -> str:
    """Return the mean with its unit."""
    return f"{statistics.fmean(getattr(row, row.unit) for row in rows):.3f} {UNITS[rows[0].unit]}"


def share(row: Row) -> float | None:
    """Return the test share of a row by repetition, 0 if it has none; None of a row by seed."""
    return None if row.repetition is None else row.test_share or 0.0


def doubt(row: Row) -> str | None:
    """Return why the value is no likelihood to compare."""
    if row.audit != "failed" and not row.below_floor:
        return None
    return shortened_reason(row.audit_reason or BELOW_FLOOR)


def obstacle(first: Row, second: Row) -> str | None:
    """Return that the units differ, if both have one."""
    return "likelihoods in different units" if len({first.unit, second.unit} - {None}) > 1 else None


def remarks(first: Row, second: Row) -> list[str]:
    """Return the settings that tuning has chosen differently."""
    before, after = (json.loads(row.chosen or "{}") for row in (first, second))
    names = [name for name in before | after if before.get(name) != after.get(name)]
    texts = [difference(name, before.get(name, "not tuned"), after.get(name, "not tuned")) for name in names]
    return [f"chosen: {', '.join(texts)}"] if texts else []


measure = Measure(
    value, text, relative=False, tested=True, share=share, doubt=doubt, obstacle=obstacle, remarks=remarks
)
