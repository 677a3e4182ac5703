"""Likelihoods of whole rows of tables, in the units of their files, as publications state them."""

from __future__ import annotations

import pandas as pd

from harness.kinds.density.captions import mean_and_interval, means_text, sentences
from harness.kinds.density.likelihoods import by_layer, by_pair, density, explained, marked, repeated, share_of
from harness.reporting.frame import Results, groups_of
from harness.reporting.tables.cells import EMPTY, Notes, grid
from harness.reporting.tables.rendering import Table


def rows_table(results: Results) -> Table | None:
    """Return a row per model and a column per table of numbers; None where no trial has read one."""
    plan, frame = results.plan, density(results)
    frame = frame.assign(value=frame["nats_per_event"].where(frame["value"].notna()))
    measured = frame.dropna(subset="value")
    if measured.empty:
        return None
    notes = Notes()
    labels = [label for label in plan.columns if label in set(measured["dataset"])]
    columns = [
        {row: _cell(trials, f"{row} on {label}", notes) for row, trials in of_layers.items()}
        for label in labels
        for of_layers in [by_layer(frame[frame["dataset"] == label], plan)]
    ]
    over = means_text((repeated(trials), len(trials)) for _, trials in groups_of(measured, ["dataset", "layer"]))
    rows = grid(plan.rows, columns)
    remarks = (*notes.numbered(), *explained(rows, frame))
    header = ("layer", *(f"{label}, nats/row ↓" for label in labels))
    return Table(f"{plan.suite}-rows", sentences("rows", over, plan.profile), header, rows, remarks, detail=True)


def _cell(trials: pd.DataFrame, where: str, notes: Notes) -> str:
    good, failed = trials.dropna(subset="value"), trials[trials["value"].isna()]
    if good.empty:
        return EMPTY
    text = marked(mean_and_interval(by_pair(good).values(), None, share_of(good)), good)
    return text + (notes.mark(f"{where}: {len(failed)} of {len(trials)} trials have no value") if len(failed) else "")
