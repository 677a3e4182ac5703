"""Compare likelihoods: paired differences over seeds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import ClassVar

from harness.core.records import Record
from harness.kinds.density.likelihoods import BELOW_FLOOR, UNITS
from harness.reporting.compare.measure import Measure, Row
from harness.reporting.compare.pairs import difference
from harness.reporting.frame import shortened


class LikelihoodMeasure(Measure):
    """Negative log-likelihood in the unit of its data; an invalid likelihood counts as a failure."""

    relative: ClassVar[bool] = False
    tested: ClassVar[bool] = True

    def value(self, row: Row) -> float | None:
        """Return the likelihood in its unit."""
        return row.get(row.get("unit") or "")

    def doubt(self, row: Row) -> str | None:
        """Return why the value is no likelihood to compare."""
        if row.get("audit") != "failed" and not row.get("below_floor"):
            return None
        return shortened(row.get("audit_reason") or BELOW_FLOOR)

    def obstacle(self, first: tuple[Row, Record], second: tuple[Row, Record]) -> str | None:
        """Return that the units differ, if both have one."""
        units = {row.get("unit") for row, _ in (first, second)} - {None}
        return "likelihoods in different units" if len(units) > 1 else None

    def remarks(self, first: Row, second: Row) -> list[str]:
        """Return the settings that tuning has chosen differently."""
        before, after = (json.loads(row.get("chosen") or "{}") for row in (first, second))
        names = [name for name in before | after if before.get(name) != after.get(name)]
        texts = [difference(name, before.get(name, "not tuned"), after.get(name, "not tuned")) for name in names]
        return [f"chosen: {', '.join(texts)}"] if texts else []

    def text(self, values: Sequence[float], rows: Sequence[Row]) -> str:
        """Return the mean with its unit."""
        unit = next(row["unit"] for row in rows if row.get("unit"))
        return f"{statistics.fmean(values):.3f} {UNITS[unit]}"


measure = LikelihoodMeasure("density")
