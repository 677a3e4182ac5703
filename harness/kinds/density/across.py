"""The layers of density suites over their data sets: ranks, effects, and outcomes against the controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from harness.core.errors import UserError
from harness.core.settings import DataRef
from harness.core.third_party import is_third_party
from harness.kinds.density.comparisons import controls_of, distance_of, margin_of
from harness.kinds.density.likelihoods import Ranking, ranking, units
from harness.kinds.density.tables.differences import control_of
from harness.kinds.density.trial import DensityTrial
from harness.planning.plan import Plan
from harness.reporting.compare.comparison import Thresholds
from harness.reporting.frame import Results
from harness.reporting.statistics.across import Outcome, Standings, complete, outcome

LEAST_DISTANCE = Thresholds().likelihood  # nats or bits per dimension, of the controls: closer ones are no scale
IMAGES, SEQUENCES, TABLES, PERMUTED = "images", "sequences", "tables of numbers", "without order"


@dataclass(frozen=True, eq=False)
class DataColumn:
    """One data set of a run."""

    label: str  # of its suite as well, where two suites have a column of this name
    suite: str
    data: DataRef
    unit: str
    ranking: Ranking

    @property
    def content(self) -> tuple[object, ...]:
        """The source and its options; equal for columns that differ in the flow, the training or the permutation."""
        return self.data.name, self.data.source, self.data.options

    @property
    def origin(self) -> tuple[object, ...]:
        """The source and the options that are names, such as a file; the others may be the size or the part taken."""
        names = [(name, value) for name, value in self.data.options if _is_text(value)]
        return self.data.name, self.data.source, tuple(names)

    @property
    def family(self) -> str:
        """The family of the data: see `family_of`."""
        return family_of(self.data, self.unit)


@dataclass(frozen=True, eq=False)
class AcrossDatasets:
    """The layers of one or more runs, compared over their data sets.

    Attributes:
        columns: the data sets that count, in plan order.
        plan: the first run's, with the rows and trials of all.
        together: the layers over all data sets.
        families: the same layers over the data sets of each family.
        controls: the control rows, in plan order, ranked or not.
        distances: by data set, the distance of its controls, where it is a scale.
        outcomes: (control, layer) -> data set -> outcome of the layer.
        remarks: on the layers and data sets that do not count, a sentence each.
    """

    columns: tuple[DataColumn, ...]
    plan: Plan
    together: Standings
    families: dict[str, Standings]
    controls: tuple[str, ...]
    distances: dict[str, float]
    outcomes: dict[tuple[str, str], dict[str, Outcome]]
    remarks: tuple[str, ...]

    @property
    def layers(self) -> list[str]:
        """The layers that are ranked on every data set, in plan order."""
        return list(map(str, self.together.means.columns))

    @property
    def reference(self) -> str | None:
        """The control from which leads are measured; None without it."""
        return control_of(self.plan)


def family_of(data: DataRef, unit: str) -> str:
    """Return the family of a data set: images, sequences or tables of numbers, the former two with or without order.

    A table of numbers is a sequence of length 1. A permutation takes the order of the entries away.
    """
    from harness.datasets import find_dataset

    kind = SEQUENCES if unit == "nats_per_dim" else IMAGES
    if not is_third_party(data.name):  # a report runs no third-party code
        try:
            shape = find_dataset(data.name).event_shape(dict(data.options))
        except UserError:  # a data set of another version
            shape = ()
        if len(shape) == 2 and shape[1] == 1:
            return TABLES  # whose entries have no order
    return kind if data.permute is None else f"{kind} {PERMUTED}"


@lru_cache(maxsize=4)  # the table, the figure and the answer ask for the same one
def across(runs: tuple[Results, ...]) -> AcrossDatasets | None:
    """Return the comparison over the data sets of these runs; None with fewer than three that rank the same layers.

    Columns of the same data in the same order count once, as the one on which most layers are ranked: they are no
    independent observations. Layers of several suites are matched by label.
    """
    plan = _joined_plan(runs)
    ranked, remarks = _distinct(_data_columns(runs))
    rows = [row for row in plan.rows if any(row in column.ranking.rows for column in ranked)]
    means = pd.DataFrame(
        [[column.ranking.means.get(row, np.nan) for row in rows] for column in ranked],
        [column.label for column in ranked],
        rows,
        dtype=float,
    )
    kept = complete(means)
    if kept is None:
        return None
    layers = list(map(str, kept.columns))
    for row in rows:
        lacking = [column.label for column in ranked if column.label in kept.index and row not in column.ranking.rows]
        if lacking:
            remarks.append(f"{row} is left out, as it is not ranked on {', '.join(lacking)}")
    for column in ranked:
        lacking = [row for row in layers if row not in column.ranking.rows]
        if lacking:
            remarks.append(f"{column.label} is left out, as {', '.join(lacking)} {_are(lacking)} not ranked on it")
    columns = tuple(column for column in ranked if column.label in kept.index)
    remarks += _dependent(columns)
    controls = controls_of(plan)
    distances = {column.label: distance_of(controls, column.ranking) for column in columns}
    distances = {label: distance for label, distance in distances.items() if distance >= LEAST_DISTANCE}
    reference = control_of(plan)
    effects = kept.iloc[:0]
    if reference in layers:
        scaled = kept.loc[list(distances)]
        effects = scaled.rsub(scaled[reference], axis="index").div(pd.Series(distances, dtype=float), axis="index")
    families: dict[str, list[str]] = {}
    for column in columns:
        families.setdefault(column.family, []).append(column.label)
    parts = {
        family: Standings(kept.loc[labels], effects.loc[effects.index.isin(labels)])
        for family, labels in families.items()
    }
    outcomes = {
        (control, row): {
            column.label: outcome(difference, margin_of(controls, column.ranking) or 0.0)
            for column in columns
            if (difference := column.ranking.difference(row, control)) is not None
        }
        for control in controls
        for row in layers
    }
    return AcrossDatasets(columns, plan, Standings(kept, effects), parts, controls, distances, outcomes, tuple(remarks))


def _joined_plan(runs: Sequence[Results]) -> Plan:
    """Return the first run's plan with the rows and trials of all."""
    plans = [results.plan for results in runs]
    rows = tuple(dict.fromkeys(row for plan in plans for row in plan.rows))
    return plans[0].model_copy(update={"rows": rows, "trials": tuple(trial for plan in plans for trial in plan.trials)})


def _data_columns(runs: Sequence[Results]) -> list[DataColumn]:
    """Return the data sets of the runs on which two layers or more are ranked."""
    names = [name for results in runs for name in results.plan.columns]
    columns = []
    for results in runs:
        data = {trial.data.label: trial.data for trial in results.plan.trials if isinstance(trial, DensityTrial)}
        for name in results.plan.columns:
            competition = ranking(results, name)
            if name in data and len(competition.rows) > 1:
                label = name if names.count(name) == 1 else f"{results.plan.suite}: {name}"
                columns.append(DataColumn(label, results.plan.suite, data[name], units(results)[name], competition))
    return columns


def _distinct(columns: Sequence[DataColumn]) -> tuple[list[DataColumn], list[str]]:
    """Return one column for each data set and order, and a remark on the others."""
    alike: dict[tuple[object, ...], list[DataColumn]] = {}
    for column in columns:
        alike.setdefault((*column.content, column.data.permute is not None), []).append(column)
    chosen = [max(group, key=lambda column: len(column.ranking.rows)) for group in alike.values()]
    remarks = []
    for column, group in zip(chosen, alike.values(), strict=True):
        others = [each.label for each in group if each is not column]
        if others:
            remarks.append(f"{', '.join(others)} {_are(others)} left out, with the same data as {column.label}")
    return chosen, remarks


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, tuple) and all(isinstance(part, str) for part in value))


def _dependent(columns: Sequence[DataColumn]) -> list[str]:
    """Return a remark on data sets of one source, such as the same images in order and permuted."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for column in columns:
        alike.setdefault(column.origin, []).append(column.label)
    return [
        f"{', '.join(labels)} are of one source: the tests take them for independent data sets, which they may not be"
        for labels in alike.values()
        if len(labels) > 1
    ]


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
