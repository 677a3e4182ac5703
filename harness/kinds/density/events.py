"""Mean, median and worst test event below a density table: whether a few events decide a model's mean."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.reporting.statistics.likelihoods import (
    ESTIMATE,
    ESTIMATED,
    SUSPECT,
    UNITS,
    has_value,
    is_estimate,
    marked,
    suspect,
    unit_of,
)
from harness.reporting.tables.cells import EMPTY, Line, Notes, failed_status
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan


def events_table(plan: Plan, lines: Sequence[Line]) -> Table | None:
    """Return a table of a row per model and three columns per data set; None where no record has these measures.

    Args:
        plan: order of rows and columns.
        lines: of `results.plan_lines`.
    """
    density = [line for line in lines if line["kind"] == "density"]
    if not any("median" in line for line in density):
        return None
    notes = Notes()
    header, groups, columns = ["layer"], [("", 1)], []
    for label in plan.columns:
        unit = unit_of(density, label)
        heading = f"{label}, {UNITS[unit]} ↓"
        groups.append((heading, 3))
        mine = [line for line in density if line["dataset"] == label]
        for name, measure in {"mean": unit, "median": "median", "worst": "worst"}.items():
            header.append(f"{heading}, {name}")
            columns.append({row: _cell(mine, row, label, name, measure, notes) for row in plan.rows})
    rows = tuple((row, *(cells[row] for cells in columns)) for row in plan.rows)
    shown = [cell for row in rows for cell in row]
    remarks = list(notes.numbered())
    remarks += [ESTIMATED] * any(cell.startswith(ESTIMATE) for cell in shown)
    remarks += [SUSPECT] * any("†" in cell for cell in shown)
    over = f", each the mean over {len(plan.seeds)} seeds" if len(plan.seeds) > 1 else ", one seed"
    caption = (
        "Test events: mean, median and worst of the negative log-likelihoods of single test events, each averaged over "
        f"its dequantisation draws{over}; lower is better. Measured: profile {plan.profile}. A mean far above the "
        "median is decided by a few events."
    )
    return Table(f"{plan.suite}-events", caption, tuple(header), rows, tuple(remarks), tuple(groups))


def _cell(lines: Sequence[Line], row: str, label: str, name: str, measure: str, notes: Notes) -> str:
    planned = [line for line in lines if line["layer"] == row]
    good = [line for line in planned if has_value(line, measure)]
    lacking = [line for line in planned if line not in good]
    statuses = "/".join(sorted({failed_status(line) for line in lacking}))
    reasons = dict.fromkeys((line.get("notes") or {}).get(measure) for line in lacking if line["status"] == "ok")
    marks = "".join(notes.mark(f"{row} on {label}, {name}: {reason}") for reason in reasons if reason is not None)
    if not good:
        return (statuses or EMPTY) + marks
    mean = statistics.fmean(line[measure] for line in good)
    text = marked(f"{mean:.3f}", any(map(suspect, good)), any(map(is_estimate, good)))
    return text + (f" ({len(good)} of {len(planned)} seeds, {statuses})" if lacking else "") + marks
