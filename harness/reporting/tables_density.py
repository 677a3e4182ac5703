"""The table of a density suite: likelihood of each layer on each data set, and what it costs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.reporting.cells import (
    EMPTY,
    OPERATIONS,
    Line,
    Notes,
    device_text,
    failed_reason,
    failed_status,
    shortened,
    threads_text,
    time_cell,
)
from harness.reporting.data_remarks import data_remarks
from harness.reporting.rendering import Table
from harness.reporting.results import MISSING
from harness.settings import DensityTrial, RuntimeTrial

if TYPE_CHECKING:
    from harness.planning.plan import Plan
    from harness.planning.suite_model import Published

ESTIMATE = "≈"  # before a likelihood that is an estimate
UNITS = {"bits_per_dim": "bits/dim", "nats_per_dim": "nats/dim"}


def density_tables(plan: Plan, lines: Sequence[Line]) -> list[Table]:
    """Likelihood and cost of each layer; published numbers beside them only under the published protocol."""
    density = [line for line in lines if line["kind"] == "density"]
    quoted = plan.published if plan.published is not None and plan.published.measure in UNITS else None
    beside = quoted if plan.profile == "paper" else None
    units = {column: unit_of(density, column) for column in plan.columns}
    notes = Notes()
    header = ["layer"]
    columns: list[dict[str, str]] = []
    for label in (*plan.columns, *plan.averages):
        members = plan.averages.get(label)
        unit = units[members[0] if members else label]
        header.append(f"{label}, {UNITS[unit]} ↓")
        if members:
            columns.append({row: _average(density, row, label, members, unit, notes) for row in plan.rows})
        else:
            columns.append({row: _likelihood(density, row, label, unit, notes) for row in plan.rows})
        if beside is not None and any(label in values for values in beside.values.values()):
            header.append(f"{label}, published")
            columns.append({row: _quoted(values, label) for row, values in beside.values.items()})
    for head, cells in [*_parameter_columns(plan, density), *_time_columns(plan, lines, notes)]:
        header.append(head)
        columns.append(cells)
    extra = [] if beside is None else [row for row in beside.values if row not in plan.rows]
    rows = [(row, *(cells.get(row, EMPTY) for cells in columns)) for row in plan.rows]
    rows += [(f"{row} (quoted)", *(cells.get(row, EMPTY) for cells in columns)) for row in extra]
    remarks = list(notes.numbered())
    if any(cell.startswith(ESTIMATE) for row in rows for cell in row):
        remarks.append(f"{ESTIMATE} an estimate of the likelihood: the flow's log-determinant is not computed exactly")
    if any("†" in cell for row in rows for cell in row):
        remarks.append("† not a likelihood to compare: the audit failed or the value is below the resolution floor")
    remarks += [f"{label}: the mean over {', '.join(members)}" for label, members in plan.averages.items()]
    remarks += data_remarks(plan, density)
    if beside is not None:
        remarks.append(f"published: {beside.source}")
    made = [Table(f"{plan.suite}-likelihood", density_caption(plan, lines), tuple(header), tuple(rows), tuple(remarks))]
    if quoted is not None and beside is None:
        made.append(_quoted_table(plan, quoted))
    return made


def density_caption(plan: Plan, lines: Sequence[Line]) -> str:
    """What the numbers are and what they rest on."""
    trials = [trial for trial in plan.trials if isinstance(trial, DensityTrial)]
    seeds = len({trial.seed for trial in trials})
    spread = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed, so no spread"
    budget = _per_column(trials, _budget)
    size = _per_column([trial for trial in trials if not trial.layer.baseline], _size)
    parts = [
        f"Negative log-likelihood on the test split, {spread}; lower is better.",
        f"Profile {plan.profile}: {budget}; Glow with {size}; {device_text(plan.device, lines)}, float32.",
    ]
    own = [trial for trial in trials if trial.layer.baseline]
    if own:
        rows = ", ".join(dict.fromkeys(trial.layer.row for trial in own))
        parts.append(f"No Glow but flows of their own, under the same budget: {rows}; {_per_column(own, _size)}.")
    timings = [trial for trial in plan.trials if isinstance(trial, RuntimeTrial)]
    if timings:
        parts.append(
            f"Times: one layer alone, median (interquartile range) of {timings[0].timing.rounds} samples, "
            f"batch {timings[0].batch}, {threads_text(timings[0].threads)}; forward includes the log-determinant."
        )
    return " ".join(parts)


def _size(trial: DensityTrial) -> str:
    levels, steps = trial.flow.levels, trial.flow.steps
    parts = f"{levels} level{'s' * (levels != 1)} of {steps} step{'s' * (steps != 1)}"
    return f"{parts}, width {trial.flow.width}"


def _budget(trial: DensityTrial) -> str:
    passes = ", two passes each (separate averages)" if trial.training.ema == "separate" else ""
    return f"{trial.training.steps} training steps of batch {trial.training.batch_size}{passes}"


def _per_column(trials: Sequence[DensityTrial], describe: Callable[[DensityTrial], str]) -> str:
    """What the trials have in common, or what each data set (and, if need be, row) has of its own."""
    by_column: dict[str, dict[str, str]] = {}
    for trial in trials:
        by_column.setdefault(trial.data.label, {})[trial.layer.row] = describe(trial)
    texts = {}
    for column, rows in by_column.items():
        kinds = Counter(rows.values())
        usual = kinds.most_common(1)[0][0]
        others = [f"{row}: {text}" for row, text in rows.items() if text != usual]
        texts[column] = usual + (f" ({', '.join(others)})" if others else "")
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{column} {text}" for column, text in texts.items())


def unit_of(density: Sequence[Line], column: str) -> str:
    """The measure of a data set, as its trials say; bits per dimension where none has got that far."""
    units = (line["unit"] for line in density if line["dataset"] == column and line.get("unit"))
    return next(units, "bits_per_dim")


def _likelihood(density: Sequence[Line], row: str, column: str, unit: str, notes: Notes) -> str:
    planned = [line for line in density if line["layer"] == row and line["dataset"] == column]
    if not planned:
        return EMPTY
    good = [line for line in planned if line["status"] == "ok" and line.get(unit) is not None]
    failed = [line for line in planned if line not in good]
    text = mean_and_spread([line[unit] for line in good])
    where = f"{row} on {column}"
    doubts = sorted({doubt for line in good if (doubt := suspect(line)) is not None})
    if doubts:
        text += " †" + notes.mark(f"{where}: {'; '.join(doubts)}")
    errors = [line["estimate_error"] for line in good if line.get("estimate_error") is not None]
    if errors:
        text = f"{ESTIMATE} {text}" + notes.mark(f"{where}: {_estimate_text(good, errors, unit)}")
    if any(line.get("audit") == "incomplete" for line in good):
        text += notes.mark(f"{where}: audit incomplete, some layers are too large for their matrix to be checked")
    if failed:
        statuses = "/".join(sorted({failed_status(line) for line in failed}))
        text = f"{text} ({len(good)} of {len(planned)} seeds, {statuses})" if good else statuses
        reasons = {f"{failed_status(line)}: {failed_reason(line)}" for line in failed if line["status"] != MISSING}
        if reasons:
            text += notes.mark(f"{where}: {'; '.join(sorted(reasons))}")
    return text


def _estimate_text(good: Sequence[Line], errors: Sequence[float], unit: str) -> str:
    """How sure an estimated likelihood is, and what its audit made of the estimates."""
    text = f"the log-determinant is estimated, which alone makes a standard error of {max(errors):.1g} {UNITS[unit]}"
    audited = dict.fromkeys((line.get("notes") or {}).get("estimates", "") for line in good)
    return "; ".join([text, *filter(None, audited)])


def _average(density: Sequence[Line], row: str, label: str, members: Sequence[str], unit: str, notes: Notes) -> str:
    """The mean over some columns, each its seeds' mean; none where a trial of theirs has no value.

    All columns then have the same seeds, and the spread is that of the mean over columns from seed to seed.
    """
    lines = [line for line in density if line["layer"] == row and line["dataset"] in members]
    without = [line for line in lines if line["status"] != "ok" or line.get(unit) is None]
    if not lines:
        return EMPTY
    if without:
        if all(line["status"] == MISSING for line in without):
            return MISSING
        lacking = ", ".join(dict.fromkeys(line["dataset"] for line in without))
        return EMPTY + notes.mark(f"{row}, {label}: none, for a trial of {lacking} has no value")
    by_seed: dict[int, list[float]] = {}
    for line in lines:
        by_seed.setdefault(line["seed"], []).append(line[unit])
    text = mean_and_spread([statistics.fmean(values) for values in by_seed.values()])
    doubtful = ", ".join(dict.fromkeys(line["dataset"] for line in lines if suspect(line)))
    return text + (" †" + notes.mark(f"{row}, {label}: that of {doubtful} is not to be compared") if doubtful else "")


def suspect(line: Line) -> str | None:
    """Why a value is not to be compared: its audit failed, the resolution floor included; None where it may be."""
    if line.get("audit") != "failed" and not line.get("below_floor"):
        return None
    return shortened(line.get("audit_reason") or "below the resolution floor")


def mean_and_spread(values: Sequence[float]) -> str:
    """ "2.314 ± 0.012"; the spread is the standard deviation, and there is none for a single value."""
    if not values:
        return EMPTY
    mean = f"{statistics.fmean(values):.3f}"
    return f"{mean} ± {statistics.stdev(values):.3f}" if len(values) > 1 else mean


def _parameter_columns(plan: Plan, density: Sequence[Line]) -> list[tuple[str, dict[str, str]]]:
    """Parameter counts, one column for all data sets that share them."""
    groups: list[tuple[list[str], dict[str, str]]] = []
    for column in plan.columns:
        mine = [line for line in density if line["dataset"] == column and line.get("parameters") is not None]
        cells = {line["layer"]: f"{line['parameters']:,}" for line in mine}
        same = next((labels for labels, known in groups if known == cells), None)
        if same is not None:
            same.append(column)
        elif cells:
            groups.append(([column], cells))
    if len(groups) == 1 and len(groups[0][0]) == len(plan.columns):
        return [("parameters", groups[0][1])]
    return [(f"parameters, {' and '.join(labels)}", cells) for labels, cells in groups]


def _time_columns(plan: Plan, lines: Sequence[Line], notes: Notes) -> list[tuple[str, dict[str, str]]]:
    """Median times of the layer alone, a column per operation and event shape.

    Data sets that share a shape and their layers' options were timed on equal terms: the first stands for all.
    """
    timed: dict[tuple[Any, ...], list[RuntimeTrial]] = {}
    for trial in plan.trials:
        if isinstance(trial, RuntimeTrial):
            timed.setdefault((trial.shape, trial.batch, trial.layers), []).append(trial)
    by_trial: dict[str, list[Line]] = {}
    for line in lines:
        by_trial.setdefault(line["id"], []).append(line)
    columns = []
    for operation, name in OPERATIONS.items():
        for same in timed.values():
            if operation in same[0].operations:
                where = "" if len(timed) == 1 else f", {' and '.join(trial.sweep for trial in same)}"
                mine = [line for line in by_trial[same[0].id] if line["operation"] == operation]
                columns.append((f"{name}, ms{where}", {line["layer"]: time_cell(line, notes) for line in mine}))
    return columns


def _quoted(values: Mapping[str, Any], column: str) -> str:
    return str(values[column]) if column in values else EMPTY


def _quoted_table(plan: Plan, quoted: Published) -> Table:
    columns = list(dict.fromkeys(name for values in quoted.values.values() for name in values if name != "width"))
    unit = UNITS.get(quoted.measure, quoted.measure)
    return Table(
        f"{plan.suite}-published",
        f"Published (protocol of the paper; not comparable with the above): {unit}. {quoted.source}.",
        ("model (quoted)", *columns),
        tuple((row, *(_quoted(values, name) for name in columns)) for row, values in quoted.values.items()),
    )
