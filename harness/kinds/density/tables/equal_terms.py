"""Density tables on equal terms: equal steps, equal training time, equal parameters or equal coupling width.

Steps and seconds are read off the training curves, at the largest that every trial of the column reached: the lowest
validation value up to there, which is that of the weights a run of this length would have kept. Parameters and width
are those of models that were trained: the nearest count among them, never one between two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from harness.core.run_options import shown_seconds
from harness.kinds.density.captions import mean_and_interval, means_text
from harness.kinds.density.likelihoods import (
    UNITS,
    Curve,
    curve,
    density,
    explained,
    fallback_note,
    marked,
    repeated,
    share_of,
    standard_error,
    units,
)
from harness.kinds.density.models import Field, Model, fields
from harness.kinds.density.tuning.searches import tuning_text
from harness.reporting.frame import Results, groups_of
from harness.reporting.tables.cells import EMPTY, Notes, grid
from harness.reporting.tables.rendering import Table

ORACLE = "an oracle, which knows the permutation: a bound for the other rows"


def equal_terms_table(results: Results, terms: str) -> Table:
    """Return a table of a row per layer, as the density table has them, in which `terms` are equal."""
    if terms in ("steps", "seconds"):
        return _along_training(results, "step" if terms == "steps" else "seconds")
    return _of_models(results, fields(results), terms)


# Along the training


def _along_training(results: Results, axis: str) -> Table:
    plan, frame, notes = results.plan, density(results), Notes()
    curves = {name: curve(record, "validation", axis) for name, record in results.records.items()}
    header, columns, sizes = ["layer"], [], list[tuple[bool, int]]()
    for column in plan.columns:
        planned = frame[frame["dataset"] == column]
        good, failed = planned[planned["status"] == "ok"], planned[planned["status"] != "ok"]
        heading = f"{column}, {UNITS[units(results)[column]]} ↓"
        cells = dict(zip(failed["layer"], failed["failure"], strict=True))
        reason = _unusable(good, curves, axis)
        if reason is not None:
            header.append(heading + notes.mark(f"{column}: {reason}"))
            columns.append(cells)
            continue
        limit = min(curves[name][-1][0] for name in good["id"])
        shown = f"step {limit:g}" if axis == "step" else shown_seconds(limit)
        header.append(f"{heading}, at {shown}")
        for row, trials in groups_of(good, "layer"):
            values = [best_until(curves[name], limit) for name in trials["id"]]
            reached = [value for value in values if value is not None]
            if len(reached) < len(values):
                cells[row] = EMPTY + notes.mark(f"{column}: no validation as early as {shown}")
            else:
                text = marked(mean_and_interval(reached, share=share_of(trials)), trials)
                cells[row] = text + (f" ({cells[row]})" if row in cells else "")
                sizes.append((repeated(trials), len(reached)))
        columns.append(cells)
    what = "training steps" if axis == "step" else "seconds of training"
    what += ": the lowest validation value up to the largest that every trial of the column reached"
    text = f"{what}, {means_text(sizes)}"
    return _table(results, "steps" if axis == "step" else "seconds", text, header, columns, notes)


def best_until(points: Sequence[tuple[float, float]], limit: float) -> float | None:
    """Return the lowest value at or before the limit; None where the first lies beyond it."""
    return min((value for place, value in points if place <= limit), default=None)


def _unusable(good: pd.DataFrame, curves: Mapping[str, Curve], axis: str) -> str | None:
    """Return why a column cannot be compared; None where it can."""
    if good.empty:
        return "no trial has ended well"
    if not all(curves.get(name) for name in good["id"]):
        return f"not every trial has recorded its validation values by {axis}"
    machines = good["machine"].unique()
    if axis == "seconds" and len(machines) > 1:
        return f"trained on {' and '.join(sorted(map(str, machines)))}, whose times are never pooled"
    return None


# Among models


def _of_models(results: Results, by_data: Sequence[Field], terms: str) -> Table:
    notes, header, columns = Notes(), ["layer"], []
    for field in by_data:
        heading = f"{field.name}, {UNITS[field.unit]} ↓"
        if terms == "width":
            for width in sorted({model.width for model in field.models}):
                of_width = [model for model in field.models if model.width == width]
                header.append(f"{heading}, width {width}")
                columns.append(
                    {model.row: f"{_value(model, notes)}, {model.parameters:,} parameters" for model in of_width}
                )
        elif field.models:
            target, chosen = nearest_counts(field.models)
            counts = [model.parameters for model in chosen]
            mark = notes.mark(
                f"{field.name}: counts from {min(counts):,} to {max(counts):,}, a factor of "
                f"{max(counts) / min(counts):.2f}; only models that were trained are shown"
            )
            header.append(f"{heading}, near {target:,} parameters{mark}")
            columns.append({m.row: f"{_value(m, notes)}, {m.parameters:,} at width {m.width}" for m in chosen})
    sizes = [(repeated(model.trials), len(model.trials)) for field in by_data for model in field.models]
    what = "coupling width" if terms == "width" else "parameters, as nearly as the widths that were trained allow"
    what = f"{what}: negative log-likelihood on the test split"
    return _table(results, terms, f"{what}, {means_text(sizes)}", header, columns, notes)


def nearest_counts(models: Sequence[Model]) -> tuple[int, list[Model]]:
    """Return the count that all rows come nearest to, and the model of each row that is nearest to it.

    Nearness is a ratio. Of all counts that occur, it is the one whose farthest row is nearest; of equals the largest.
    """
    rows = dict.fromkeys(model.row for model in models)

    def chosen(target: int) -> list[Model]:
        by_row = ([model for model in models if model.row == row] for row in rows)
        return [min(some, key=lambda model: distance(model, target)) for some in by_row]

    def distance(model: Model, target: int) -> float:
        return abs(math.log(model.parameters / target))

    def farthest(target: int) -> float:
        return max(distance(model, target) for model in chosen(target))

    target = min(sorted({model.parameters for model in models}, reverse=True), key=farthest)
    return target, chosen(target)


def _value(model: Model, notes: Notes) -> str:
    trials = model.trials
    text = mean_and_interval(trials["value"], standard_error(trials), share_of(trials))
    return marked(text, trials) + (notes.mark(f"{model.row}: {ORACLE}") if model.oracle else "")


def _table(
    results: Results, terms: str, what: str, header: list[str], columns: list[dict[str, str]], notes: Notes
) -> Table:
    plan = results.plan
    caption = f"At equal {what}; lower is better. Profile {plan.profile}, {plan.device}. {tuning_text(results)}"
    rows = grid(plan.rows, columns)
    remarks = (*notes.numbered(), *explained(rows, density(results)))
    if terms == "seconds":
        remarks += fallback_note(results)
    return Table(f"{plan.suite}-at-{terms}", caption, tuple(header), rows, remarks)
