"""The lead of each layer over the control, by the capacity of the couplings or of autoregressive blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.core.settings import DataRef, FlowSettings
from harness.kinds.density.captions import interval_texts, sample_words
from harness.kinds.density.likelihoods import IMPROVING, UNITS, density, units
from harness.kinds.density.tables.differences import control_of, leads
from harness.kinds.density.trial import DensityTrial
from harness.kinds.density.tuning.searches import tuning_text
from harness.pipeline.models import backbone_of
from harness.reporting.figures.figure_style import INK, Look, footnotes, looks, panels, plain, row_handles, side_legend
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import Difference

if TYPE_CHECKING:
    from harness.planning.plan import Plan

HEADING = "Lead against capacity"
ORDER = 2

SPREAD = 0.07  # between the layers of one capacity, in units of the distance of two capacities; less for many layers
WIDEST = 0.75  # of all layers of one capacity, so that they are apart from those of the next

INTERVAL = 0.11  # inches for each layer at each capacity

Leads = Mapping[str, Difference]
"""Layer -> control - layer."""


@dataclass(frozen=True)
class CapacityPanel:
    """Columns of one data set that differ in one capacity alone, and those of other backbones beside them."""

    title: str
    axis: str
    columns: Mapping[str, str]  # tick -> column, by rising capacity
    # Tick -> column, of another backbone, or of another coupling network and else as `columns`.
    others: Mapping[str, str]


def figures(results: Results) -> dict[str, Figure]:
    """Return a panel per data set and kind of capacity: a line per layer, its lead over the control."""
    plan = results.plan
    control, shown = control_of(plan), list(_panels(plan))
    if control is None or not shown:
        return {}
    by_column = {column: leads(results, column, control) for column in plan.columns}
    if not any(by_column.values()):
        return {}
    chosen = {row: look for row, look in looks(plan).items() if any(row in cells for cells in by_column.values())}
    ticks = max(len(panel.columns) + len(panel.others) for panel in shown)
    figure, grid = panels(len(shown), max(3.6, INTERVAL * ticks * len(chosen)), 3.0, columns=2)
    for axes, panel in zip(grid, shown, strict=True):
        _draw(axes, panel, chosen, by_column)
        first = next(iter(panel.columns.values()))
        axes.set_ylabel(f"lead, {UNITS[units(results)[first]]} (higher is better)")
    side_legend(
        figure, [*row_handles(chosen, markersize=5), Line2D([], [], color=INK, linewidth=1, label=plain(control))]
    )
    differences = [difference for cells in by_column.values() for difference in cells.values()]
    words = sample_words(differences)
    notes = [f"lead: negative log-likelihood of {control} minus that of the layer, by paired {words}"]
    notes += interval_texts(differences)
    if density(results)["improving"].any():
        notes.append(f"some trainings still improved when they reached their bound ({IMPROVING} in the table)")
    footnotes(figure, [*notes, tuning_text(results)])
    return {"capacity": figure}


def _panels(plan: Plan) -> Iterator[CapacityPanel]:
    """Yield the panels, data sets in plan order; the backbone of a column is that of most of its rows."""
    settings: dict[str, set[tuple[str, Hashable]]] = {}  # column -> of each row, all but data set, backbone and seed
    backbones: dict[str, Counter[FlowSettings]] = {}
    data: dict[str, DataRef] = {}
    for trial in plan.trials:
        if isinstance(trial, DensityTrial):
            column = trial.data.label
            data.setdefault(column, trial.data.model_copy(update={"label": ""}))  # of the first repetition
            settings.setdefault(column, set()).add((trial.layer.row, (trial.layer, trial.training, trial.tuning)))
            backbones.setdefault(column, Counter())[trial.flow] += 1
    groups: list[dict[str, FlowSettings]] = []
    for column, flows in backbones.items():
        (usual, _), *_ = flows.most_common(1)
        for group in groups:
            first = next(iter(group))
            if data[first] == data[column] and _agree(settings[first], settings[column]):
                group[column] = usual
                break
        else:
            groups.append({column: usual})
    for group in groups:
        reference = data[next(iter(group))]
        for setting in dict.fromkeys(name for flow in group.values() for name in backbone_of(flow).capacities):
            yield from _series(plain(reference.name) + ", permuted" * (reference.permute is not None), group, setting)


def _agree(first: set[tuple[str, Hashable]], second: set[tuple[str, Hashable]]) -> bool:
    """Return whether the rows that both columns have are of equal settings."""
    both = {row for row, _ in first} & {row for row, _ in second}
    return bool(both) and not any(row in both for row, _ in first ^ second)


def _series(title: str, flows: Mapping[str, FlowSettings], setting: str) -> Iterator[CapacityPanel]:
    """Yield a panel for each group of columns with several values of one setting and equal others."""
    for rest in dict.fromkeys(_without(flow, setting) for flow in flows.values()):
        axis = backbone_of(rest).capacities.get(setting)
        if axis is None:
            continue
        columns = {getattr(flow, setting): column for column, flow in flows.items() if _without(flow, setting) == rest}
        if len(columns) > 1:
            others = {
                f"{_network(flow)}\n{getattr(flow, setting)}": column
                for column, flow in flows.items()
                if flow.backbone != rest.backbone or _is_beside(_without(flow, setting), rest)
            }
            yield CapacityPanel(title, axis, {str(value): columns[value] for value in _ascending(columns)}, others)


def _ascending(values: Iterable[int | str]) -> list[int | str]:
    """Return numbers by size, then words."""
    return sorted(values, key=lambda value: (isinstance(value, str), value))


def _is_beside(flow: FlowSettings, rest: FlowSettings) -> bool:
    """Return whether two backbones differ in their coupling networks alone."""
    return flow.coupling != rest.coupling and flow.model_copy(update={"coupling": rest.coupling}) == rest


def _network(flow: FlowSettings) -> str:
    return flow.coupling if flow.coupling != "auto" else flow.backbone


def _without(flow: FlowSettings, setting: str) -> FlowSettings:
    """Return the settings with one of them as by default."""
    return flow.model_copy(update={setting: FlowSettings.model_fields[setting].default})


def _draw(axes: Axes, panel: CapacityPanel, rows: Mapping[str, Look], by_column: Mapping[str, Leads]) -> None:
    """Draw the leads: lines over the columns, and points for other coupling networks right of a dotted line."""
    columns = [*panel.columns.values(), *panel.others.values()]
    last = len(panel.columns)
    axes.axhline(0, color=INK, linewidth=1)
    if panel.others:
        axes.axvline(last - 0.5, color=INK, linewidth=0.8, linestyle=":")
    for number, (row, look) in enumerate(rows.items()):
        shift = min(SPREAD, WIDEST / len(rows)) * (number - (len(rows) - 1) / 2)  # so that no interval covers another
        points = [(x, by_column[column][row]) for x, column in enumerate(columns) if row in by_column[column]]
        for joined in (True, False):
            group = [(x + shift, lead) for x, lead in points if (x < last) == joined]
            if group:
                means = [lead.estimate.mean for _, lead in group]
                ends = [lead.interval or (mean, mean) for mean, (_, lead) in zip(means, group, strict=True)]
                axes.errorbar(
                    [x for x, _ in group],
                    means,
                    yerr=[
                        [mean - low for mean, (low, _) in zip(means, ends, strict=True)],
                        [high - mean for mean, (_, high) in zip(means, ends, strict=True)],
                    ],
                    color=look.colour,
                    marker=look.marker,
                    linestyle="-" if joined else "none",
                    linewidth=1.2,
                    markersize=5,
                    capsize=2,
                )
    axes.set_title(panel.title)
    axes.set_xlabel(panel.axis)
    axes.set_xticks(range(len(columns)), [*panel.columns, *panel.others])
    axes.grid(axis="x", visible=False)
