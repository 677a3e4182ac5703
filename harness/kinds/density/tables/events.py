"""Mean, median and worst test event below a density table: whether a few events decide a model's mean."""

from __future__ import annotations

import pandas as pd

from harness.kinds.density.likelihoods import UNITS, density, explained, marked, units
from harness.reporting.frame import Results, rows_of
from harness.reporting.tables.cells import EMPTY, Notes, grid
from harness.reporting.tables.rendering import Table


def events_table(results: Results) -> Table | None:
    """Return a table of a row per model and three columns per data set; None where no trial has these measures."""
    plan, frame = results.plan, density(results)
    if frame[["median", "worst"]].isna().all(axis=None):
        return None
    notes = Notes()
    header, groups, columns = ["layer"], [("", 1)], []
    for label in plan.columns:
        unit = units(results)[label]
        heading = f"{label}, {UNITS[unit]} ↓"
        groups.append((heading, 3))
        trials = frame[frame["dataset"] == label]
        for name, measure in {"mean": unit, "median": "median", "worst": "worst"}.items():
            header.append(f"{heading}, {name}")
            columns.append(
                {
                    row: _cell(trials[trials["layer"] == row], measure, f"{row} on {label}, {name}", notes)
                    for row in plan.rows
                }
            )
    rows = grid(plan.rows, columns)
    counts = sorted(frame.groupby("dataset")["seed"].nunique().unique())
    over = f", each the mean over {' or '.join(map(str, counts))} seeds" if counts != [1] else ", one seed"
    caption = (
        "Test events: mean, median and worst of the negative log-likelihoods of single test events, each averaged over "
        f"its dequantisation draws{over}; lower is better. Measured: profile {plan.profile}. A mean far above the "
        "median is decided by a few events."
    )
    remarks = (*notes.numbered(), *explained(rows))
    return Table(f"{plan.suite}-events", caption, tuple(header), rows, remarks, tuple(groups), detail=True)


def worst_events(results: Results) -> list[str]:
    """Return a remark with the worst test event of each data set, over all layers and seeds; none without one."""
    frame = density(results).dropna(subset=["worst", "value"])
    parts = []
    for label in results.plan.columns:
        of_column = frame[frame["dataset"] == label]
        if len(of_column):
            line = next(rows_of(of_column.sort_values("worst", ascending=False, kind="stable")))
            unit = UNITS[units(results)[label]]
            parts.append(f"{label} {line.worst:.3f} {unit} ({line.layer}, whose mean is {line.value:.3f})")
    return [f"worst test event: {'; '.join(parts)}"] if parts else []


def _cell(planned: pd.DataFrame, measure: str, where: str, notes: Notes) -> str:
    measured = (planned["status"] == "ok") & planned[measure].notna()
    good, lacking = planned[measured], planned[~measured]
    statuses = "/".join(sorted(set(lacking["failure"])))
    reasons = dict.fromkeys(remarks.get(measure) for remarks in lacking.loc[lacking["status"] == "ok", "notes"])
    marks = "".join(notes.mark(f"{where}: {reason}") for reason in reasons if reason is not None)
    if good.empty:
        return (statuses or EMPTY) + marks
    text = marked(f"{good[measure].mean():.3f}", good)
    return text + (f" ({len(good)} of {len(planned)} seeds, {statuses})" if len(lacking) else "") + marks
