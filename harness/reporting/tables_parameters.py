"""The table of a suite that counts parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harness.reporting.cells import EMPTY, Line, Notes, count_cell
from harness.reporting.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan


def parameters_table(plan: Plan, lines: Sequence[Line]) -> Table:
    """Counts of the built models at each width, without masked entries, and beside the published ones."""
    notes = Notes()
    columns = list(dict.fromkeys(line["dataset"] for line in lines))
    widths_of = {column: sorted({line["width"] for line in lines if line["dataset"] == column}) for column in columns}
    header = ["layer"]
    for column, widths in widths_of.items():
        of = "" if len(columns) == 1 else f"{column}, "
        header += [f"{of}width {width}" for width in widths]
        header += [f"{of}width {width}, unmasked" for width in widths]
        if plan.published is not None:
            header += [f"{of}published", f"{of}at width", f"{of}equal"]
    rows = []
    for row in plan.rows:
        cells = [row]
        for column, widths in widths_of.items():
            mine = {line["width"]: line for line in lines if line["layer"] == row and line["dataset"] == column}
            cells += [count_cell(mine.get(width), "parameters", notes) for width in widths]
            cells += [count_cell(mine.get(width), "masked_free", notes) for width in widths]
            if plan.published is not None:
                cells += _comparison(mine.values())
        rows.append(tuple(cells))
    remarks = notes.numbered()
    if plan.published is not None:
        remarks += (f"published: {plan.published.source}",)
    caption = (
        "Parameters of built models by coupling width; unmasked: entries that a mask hides from the map do not count."
    )
    return Table(f"{plan.suite}-parameters", caption, tuple(header), tuple(rows), remarks)


def _comparison(lines: Iterable[Line]) -> list[str]:
    for line in lines:
        if line.get("published") is not None:
            equal = (
                EMPTY if line.get("parameters") is None else "yes" if line["parameters"] == line["published"] else "no"
            )
            return [f"{line['published']:,}", str(line["width"]), equal]
    return [EMPTY, EMPTY, EMPTY]
