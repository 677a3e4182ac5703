"""The costs beside a density table: parameters of each flow, and times of each layer alone."""

from __future__ import annotations

from harness.kinds.runtime.layer_times import time_columns, timing_text
from harness.reporting.frame import Results
from harness.reporting.tables.cells import EMPTY, Notes, device_text
from harness.reporting.tables.rendering import Table


def cost_table(results: Results) -> Table | None:
    """Return a table of a row per layer; None where nothing was counted or timed."""
    plan, notes = results.plan, Notes()
    columns = [*_parameter_columns(results), *time_columns(results, notes)]
    if not columns:
        return None
    caption = (
        f"Measured: profile {plan.profile}, {device_text(plan.device, results.frame)}. Parameters: of the whole flow."
        f"{timing_text(results)}"
    )
    rows = tuple((row, *(cells.get(row, EMPTY) for _, cells in columns)) for row in plan.rows)
    header = ("layer", *(head for head, _ in columns))
    return Table(f"{plan.suite}-cost", caption, header, rows, notes.numbered())


def _parameter_columns(results: Results) -> list[tuple[str, dict[str, str]]]:
    """Return parameter counts, one column for all data sets that share them."""
    counted = results.of_kind("density").dropna(subset="parameters")
    groups: list[tuple[list[str], dict[str, str]]] = []
    for column in results.plan.columns:
        own = counted[counted["dataset"] == column]
        cells = {row: f"{count:,}" for row, count in zip(own["layer"], own["parameters"], strict=True)}
        same = next((labels for labels, known in groups if known == cells), None)
        if same is not None:
            same.append(column)
        elif cells:
            groups.append(([column], cells))
    if len(groups) == 1 and len(groups[0][0]) == len(results.plan.columns):
        return [("parameters", groups[0][1])]
    return [(f"parameters, {' and '.join(labels)}", cells) for labels, cells in groups]
