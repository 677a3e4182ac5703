"""The tables of a density suite, the first of which is that of publications: models by data sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.kinds.density.cost import cost_table
from harness.kinds.density.data_remarks import data_remarks
from harness.kinds.density.differences import differences_table
from harness.kinds.density.events import events_table
from harness.kinds.density.fidelity import fidelity_table
from harness.kinds.density.trial import DensityTrial
from harness.reporting.results import MISSING
from harness.reporting.statistics.likelihoods import (
    ESTIMATE,
    ESTIMATED,
    SUSPECT,
    UNITS,
    Ranking,
    by_seed,
    has_value,
    is_estimate,
    members_of,
    ranking,
    suspect,
    unit_of,
)
from harness.reporting.statistics.statistics import LEAST_SEEDS, SIGNIFICANCE, estimate
from harness.reporting.tables.cells import EMPTY, Line, Notes, device_text, failed_reason, failed_status, layer_cell
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan
    from harness.planning.suite_model import Published

MEASURED, PUBLISHED, QUOTED = "measured", "published", "quoted"


def density_tables(plan: Plan, lines: Sequence[Line]) -> list[Table]:
    """Likelihoods, test events, differences, costs; published numbers beside them under the published protocol only."""
    density = [line for line in lines if line["kind"] == "density"]
    quoted = plan.published if plan.published is not None and plan.published.measure in UNITS else None
    beside = quoted if plan.profile == "paper" else None
    labels = (*plan.columns, *plan.averages)
    rankings = {label: ranking(plan, density, label) for label in labels}
    made = [
        _likelihoods(plan, lines, density, rankings, beside),
        events_table(plan, lines),
        differences_table(plan, rankings),
        fidelity_table(plan, lines),
        cost_table(plan, lines),
        _published_table(plan, quoted) if quoted is not None and beside is None else None,
    ]
    return [table for table in made if table is not None]


def _likelihoods(
    plan: Plan,
    lines: Sequence[Line],
    density: Sequence[Line],
    rankings: Mapping[str, Ranking],
    beside: Published | None,
) -> Table:
    """A row per model and a column per data set, as publications have it; what they say stands beside what we found."""
    notes = Notes()
    header, groups = ["layer"], [("", 1)]
    columns: list[dict[str, str]] = []
    bold: set[tuple[int, int]] = set()
    for label, competition in rankings.items():
        members = members_of(plan, label)
        unit = unit_of(density, members[0])
        heading = f"{label}, {UNITS[unit]} ↓"
        one = _average if label in plan.averages else _likelihood
        found = {row: one(density, row, label, members, unit, notes) for row in plan.rows}
        if competition.winner is not None:
            bold.add((plan.rows.index(competition.winner), len(header)))
        header.append(heading)
        columns.append(found)
        published = beside is not None and any(label in values for values in beside.values.values())
        if beside is not None and published:
            header[-1:] = [f"{heading}, {MEASURED}", f"{heading}, {PUBLISHED}"]
            columns.append({row: _quoted(values, label) for row, values in beside.values.items()})
        groups.append((heading if published else "", 1 + published))
    extra = [] if beside is None else [row for row in beside.values if row not in plan.rows]
    rows = [(layer_cell(row, density, notes), *(cells.get(row, EMPTY) for cells in columns)) for row in plan.rows]
    rows += [(f"{row} ({QUOTED})", *(cells.get(row, EMPTY) for cells in columns)) for row in extra]
    remarks = list(notes.numbered())
    if any(cell.startswith(ESTIMATE) for row in rows for cell in row):
        remarks.append(ESTIMATED)
    if any("†" in cell for row in rows for cell in row):
        remarks.append(SUSPECT)
    remarks += [f"{label}: the mean over {', '.join(members)}" for label, members in plan.averages.items()]
    remarks += data_remarks(plan, density)
    remarks += [plan.remark] if plan.remark else []
    if beside is not None:
        remarks.append(f"{PUBLISHED}: {beside.source}")
    if extra:
        remarks.append(f"{QUOTED}: published there, and not trained by this suite")
    return Table(
        f"{plan.suite}-likelihood",
        density_caption(plan, lines, bool(bold)),
        tuple(header),
        tuple(rows),
        tuple(remarks),
        tuple(groups) if beside is not None else (),
        frozenset(bold),
    )


def density_caption(plan: Plan, lines: Sequence[Line], bold: bool = False) -> str:
    """What the numbers are and what they rest on."""
    trials = [trial for trial in plan.trials if isinstance(trial, DensityTrial)]
    seeds = len({trial.seed for trial in trials})
    budget = _per_column(trials, _budget)
    size = _per_column([trial for trial in trials if not trial.layer.baseline], _size)
    parts = [
        f"Negative log-likelihood on the test split, {seeds_text(seeds)}; lower is better.",
        f"Measured: profile {plan.profile}, {budget}; Glow with {size}; {device_text(plan.device, lines)}, float32.",
    ]
    own = [trial for trial in trials if trial.layer.baseline]
    if own:
        rows = ", ".join(dict.fromkeys(trial.layer.row for trial in own))
        parts.append(f"No Glow but flows of their own, under the same budget: {rows}; {_per_column(own, _size)}.")
    if plan.published is not None and plan.profile != "paper":
        parts.append("Not the published protocol: to be compared with no published number.")
    if bold:
        parts.append(
            f"Bold: below every other row by a paired t test, p < {SIGNIFICANCE:g} after Holm's correction for all "
            "pairs of rows."
        )
    return " ".join(parts)


def seeds_text(seeds: int) -> str:
    """What stands behind a mean: "mean [95 % bootstrap interval] over 3 seeds"."""
    if seeds < 2:
        return "one seed, so no interval"
    few = f", too few for a test (at least {LEAST_SEEDS})" if seeds < LEAST_SEEDS else ""
    return f"mean [95 % bootstrap interval] over {seeds} seeds{few}"


def _size(trial: DensityTrial) -> str:
    levels, steps = trial.flow.levels, trial.flow.steps
    parts = f"{levels} level{'s' * (levels != 1)} of {steps} step{'s' * (steps != 1)}"
    bounded = trial.flow.gate == "bounded" and not trial.layer.baseline
    return f"{parts}, width {trial.flow.width}" + ", coupling scales bounded to (0.5, 1.5)" * bounded


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


def _likelihood(density: Sequence[Line], row: str, column: str, members: Sequence[str], unit: str, notes: Notes) -> str:
    planned = [line for line in density if line["layer"] == row and line["dataset"] in members]
    if not planned:
        return EMPTY
    good = [line for line in planned if has_value(line, unit)]
    failed = [line for line in planned if line not in good]
    text = mean_and_interval([line[unit] for line in good])
    where = f"{row} on {column}"
    doubts = sorted({doubt for line in good if (doubt := suspect(line)) is not None})
    if doubts:
        text += " †" + notes.mark(f"{where}: {'; '.join(doubts)}")
    errors = [line["estimate_error"] for line in good if is_estimate(line)]
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

    All columns then have the same seeds, and the interval is that of the mean over columns from seed to seed.
    """
    lines = [line for line in density if line["layer"] == row and line["dataset"] in members]
    without = [line for line in lines if not has_value(line, unit)]
    if not lines:
        return EMPTY
    if without:
        if all(line["status"] == MISSING for line in without):
            return MISSING
        lacking = ", ".join(dict.fromkeys(line["dataset"] for line in without))
        return EMPTY + notes.mark(f"{row}, {label}: none, for a trial of {lacking} has no value")
    text = mean_and_interval(list(by_seed(lines, unit).values()))
    doubtful = ", ".join(dict.fromkeys(line["dataset"] for line in lines if suspect(line)))
    return text + (" †" + notes.mark(f"{row}, {label}: that of {doubtful} is not to be compared") if doubtful else "")


def mean_and_interval(values: Sequence[float]) -> str:
    """ "2.314 [2.301, 2.325]"; there is no interval for a single value."""
    if not values:
        return EMPTY
    found = estimate(values)
    return f"{found.mean:.3f}" + ("" if found.low is None else f" [{found.low:.3f}, {found.high:.3f}]")


def _quoted(values: Mapping[str, Any], column: str) -> str:
    """A published number with the two decimals of publications, more where it has more."""
    if column not in values:
        return EMPTY
    text = f"{values[column]:.2f}"
    return text if float(text) == values[column] else str(values[column])


def _published_table(plan: Plan, quoted: Published) -> Table:
    """Published numbers by themselves, each row with its source."""
    columns = list(dict.fromkeys(name for values in quoted.values.values() for name in values if name != "width"))
    rows = [
        (row, *(_quoted(values, name) for name in columns), PUBLISHED if row in plan.rows else QUOTED)
        for row, values in quoted.values.items()
    ]
    return Table(
        f"{plan.suite}-published",
        f"Published (protocol of the paper; not comparable with anything measured in profile {plan.profile}): "
        f"{UNITS[quoted.measure]} ↓. {quoted.source}.",
        ("model", *columns, "source"),
        tuple(rows),
        (f"{QUOTED}: published there, and not trained by this suite",) if any(QUOTED in row for row in rows) else (),
    )
