"""The report of a suite of examinations: one table per property."""

from __future__ import annotations

from functools import cached_property

from harness.kinds.examination.examinations import EXAMINATIONS
from harness.reporting.frame import groups_of, rows_of
from harness.reporting.report import Report
from harness.reporting.tables.cells import EMPTY, Notes, failed_cell
from harness.reporting.tables.rendering import Table


class ExaminationReport(Report, kind="examination"):
    """One table per property."""

    @cached_property
    def tables(self) -> list[Table]:
        """A table per property, a row per data set and layer; layers that do not support it are left out."""
        made = []
        for name, lines in groups_of(self.results.frame, "examine"):
            measures, notes, rows = EXAMINATIONS[name].measures, Notes(), []
            for line in rows_of(lines[lines["status"] != "unsupported"]):
                if line.status != "ok":
                    cells = [failed_cell(line, notes), *[EMPTY] * (len(measures) - 1)]
                else:
                    cells = [show(getattr(line, measure)) for measure, (_, _, show) in measures.items()]
                rows.append((line.layer, line.dataset, *cells))
            if rows:
                header = ("layer", "on", *(heading for _, heading, _ in measures.values()))
                about = (f"{self.results.plan.suite}-{name}", EXAMINATIONS[name].caption, header)
                made.append(Table(*about, tuple(rows), notes.numbered(), words=frozenset({1})))
        return made
