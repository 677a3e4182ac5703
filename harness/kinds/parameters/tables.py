"""The tables of a suite that counts parameters: one for each data set, as widths and models differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harness.reporting.tables.cells import EMPTY, Line, Notes, count_cell, layer_cell
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan


def parameters_tables(plan: Plan, lines: Sequence[Line]) -> list[Table]:
    """Counts of the built models at each width, without masked entries, and beside the published ones."""
    columns = dict.fromkeys(line["dataset"] for line in lines)
    return [_table(plan, column, [line for line in lines if line["dataset"] == column]) for column in columns]


def _table(plan: Plan, column: str, lines: Sequence[Line]) -> Table:
    notes = Notes()
    widths = sorted({line["width"] for line in lines})
    header = ["layer", *(f"width {width}" for width in widths), *(f"width {width}, unmasked" for width in widths)]
    if plan.published is not None:
        header += ["published", "at width", "equal"]
    rows = []
    for row in plan.rows:
        mine = {line["width"]: line for line in lines if line["layer"] == row}
        cells = [layer_cell(row, lines, notes)]
        cells += [count_cell(mine.get(width), "parameters", notes) for width in widths]
        cells += [count_cell(mine.get(width), "masked_free", notes) for width in widths]
        if plan.published is not None:
            cells += _comparison(mine.values())
        rows.append(tuple(cells))
    remarks = notes.numbered()
    if plan.published is not None:
        remarks += (f"published: {plan.published.source}",)
    caption = (
        f"Parameters of the {column} models as built, by coupling width; unmasked: entries that a mask hides from "
        "the map do not count."
    )
    return Table(f"{plan.suite}-parameters-{column}", caption, tuple(header), tuple(rows), remarks)


def _comparison(lines: Iterable[Line]) -> list[str]:
    for line in lines:
        if line.get("published") is not None:
            equal = (
                EMPTY if line.get("parameters") is None else "yes" if line["parameters"] == line["published"] else "no"
            )
            return [f"{line['published']:,}", str(line["width"]), equal]
    return [EMPTY, EMPTY, EMPTY]
