"""Mean, median and worst test event below a density table: whether a few events decide a model's mean."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import combinations

import pandas as pd

from harness.kinds.density.captions import pair_words, sentences
from harness.kinds.density.likelihoods import (
    UNITS,
    by_layer,
    by_pair,
    density,
    explained,
    marked,
    of_column,
    ranking,
    repeated,
    units,
)
from harness.reporting.frame import Results, rows_of
from harness.reporting.page.answer import listed
from harness.reporting.statistics.statistics import sample_text
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
        of_layers = by_layer(frame[frame["dataset"] == label], plan)
        for name, measure in {"mean": unit, "median": "median", "worst": "worst"}.items():
            header.append(f"{heading}, {name}")
            columns.append(
                {row: _cell(trials, measure, f"{row} on {label}, {name}", notes) for row, trials in of_layers.items()}
            )
    rows = grid(plan.rows, columns)
    counts = sorted(frame.groupby("dataset")["pair"].nunique().unique())
    words = pair_words(repeated(trials) for _, trials in frame.groupby("dataset"))
    caption = sentences("events", " or ".join(map(str, counts)), words, plan.profile)
    remarks = (*notes.numbered(), *explained(rows, frame))
    return Table(f"{plan.suite}-events", caption, tuple(header), rows, remarks, tuple(groups), detail=True)


def worst_events(results: Results) -> list[str]:
    """Return a remark with the worst test event of each data set, over all layers and seeds; none without one."""
    frame = density(results).dropna(subset=["worst", "value"])
    parts = []
    for label in results.plan.columns:
        trials = frame[frame["dataset"] == label]
        if len(trials):
            line = next(rows_of(trials.sort_values("worst", ascending=False, kind="stable")))
            unit = UNITS[units(results)[label]]
            parts.append(f"{label} {line.worst:.3f} {unit} ({line.layer}, whose mean is {line.value:.3f})")
    remarks = [f"worst test event: {'; '.join(parts)}"] if parts else []
    return remarks + [f"one event decides: {text}" for text in single_events(results)]


def single_events(results: Results) -> list[str]:
    """Return, for each data set or average, how the order of the ranked rows depends on single test events.

    The order is that of the means, against that of the means in which each trial leaves out its worst test event. None
    where they agree, and where a record does not have the number of its test events.
    """
    frame = density(results)
    events, worst = frame["test_events"].astype("Float64"), frame["worst"]
    without = ((frame["value"] * events - worst) / (events - 1)).where(events > 1)
    frame = frame.assign(value=without)
    texts = []
    for label in (*results.plan.columns, *results.plan.means):
        order = ranking(results, label).order
        columns = of_column(frame, results.plan, label)
        if len(order) < 2 or any(columns[row]["value"].isna().any() for row in order):
            continue
        means = {row: statistics.fmean(by_pair(columns[row]).values()) for row in order}
        changed = sorted(order, key=lambda row: means[row])
        if changed != order:
            texts.append(f"{label}: {_changed_order(order, changed)}")
    return texts


def _changed_order(order: Sequence[str], changed: Sequence[str]) -> str:
    """Return in a sentence how the second order differs from the first."""
    text = "without the worst test event of each training "
    if changed[0] != order[0]:
        text += f"{changed[0]} has the lowest mean, not {order[0]}"
    turned = [(a, b) for a, b in combinations(order, 2) if changed.index(a) > changed.index(b)]
    others = [f"{b} lies before {a}" for a, b in turned if (a, b) != (order[0], changed[0])]
    return text + "; " * bool(changed[0] != order[0] and others) + listed(others)


def _cell(planned: pd.DataFrame, measure: str, where: str, notes: Notes) -> str:
    measured = (planned["status"] == "ok") & planned[measure].notna()
    good, lacking = planned[measured], planned[~measured]
    statuses = "/".join(sorted(set(lacking["failure"])))
    reasons = dict.fromkeys(remarks.get(measure) for remarks in lacking.loc[lacking["status"] == "ok", "notes"])
    marks = "".join(notes.mark(f"{where}: {reason}") for reason in reasons if reason is not None)
    if good.empty:
        return (statuses or EMPTY) + marks
    text = marked(f"{good[measure].mean():.3f}", good.assign(improving=False))  # which the first table marks
    sample = sample_text(len(planned), repeated(planned))
    return text + (f" ({len(good)} of {sample}, {statuses})" if len(lacking) else "") + marks
