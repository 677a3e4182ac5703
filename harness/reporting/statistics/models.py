"""The trained models of a density suite by data set: each row at each coupling width, with its costs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.kinds.density.trial import DensityTrial
from harness.reporting.statistics.likelihoods import has_value, is_estimate, suspect, unit_of
from harness.reporting.tables.cells import Line

if TYPE_CHECKING:
    from harness.planning.plan import Plan


@dataclass(frozen=True)
class Model:
    """One row at one width on one data set.

    Attributes:
        row, width: which.
        values: likelihoods by seed, of those that have one.
        parameters: of the flow.
        seconds: of training, the mean over seeds; None where not all seeds were trained on one kind of machine.
        machine: that kind.
        competes: whether all its seeds have a likelihood that may be compared, and it is told nothing.
        estimated: whether they are estimates.
    """

    row: str
    width: int
    values: tuple[float, ...]
    parameters: int
    seconds: float | None
    machine: str | None
    competes: bool
    estimated: bool

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.fmean(self.values)


@dataclass(frozen=True)
class Field:
    """All models of one data set, trained alike but for their width.

    Attributes:
        name: the columns that it comes from.
        unit: of its likelihoods.
        models: in plan order; none without a value.
    """

    name: str
    unit: str
    models: tuple[Model, ...]


def fields(plan: Plan, lines: Sequence[Line]) -> list[Field]:
    """The models by data set; columns of the same data and training, which differ in width alone, are one.

    Args:
        plan: order of rows and columns.
        lines: of `results.plan_lines`.
    """
    density = [line for line in lines if line["kind"] == "density"]
    by_id: dict[str, Line] = {line["id"]: line for line in density}
    groups: dict[Any, dict[tuple[str, int, str], list[DensityTrial]]] = {}
    for column in plan.columns:
        for trial in plan.trials:
            if isinstance(trial, DensityTrial) and trial.data.label == column:
                group = groups.setdefault(_alike(trial), {})
                group.setdefault((trial.layer.row, trial.flow.width, column), []).append(trial)
    found = []
    for group in groups.values():
        labels = list(dict.fromkeys(column for _, _, column in group))
        unit = unit_of(density, labels[0])
        models: dict[tuple[str, int], Model] = {}
        for (row, width, _), trials in group.items():
            model = _model(row, width, trials, [by_id[trial.id] for trial in trials], unit)
            if model is not None:  # the same model in a second column is the same again
                models.setdefault((row, width), model)
        ordered = sorted(models.values(), key=lambda model: (plan.rows.index(model.row), model.width))
        found.append(Field(" and ".join(labels), unit, tuple(ordered)))
    return found


def _alike(trial: DensityTrial) -> tuple[Any, ...]:
    """What models of one field have in common."""
    data = trial.data.model_copy(update={"label": ""})
    return data, trial.flow.levels, trial.flow.steps, trial.training.steps, trial.training.batch_size


def _model(row: str, width: int, trials: Sequence[DensityTrial], lines: Sequence[Line], unit: str) -> Model | None:
    good = [line for line in lines if has_value(line, unit) and line.get("parameters") is not None]
    if not good:
        return None
    times = [line["train_seconds"] for line in good if line.get("train_seconds") is not None]
    machines = {line.get("machine") for line in good}
    timed = len(times) == len(good) and len(machines) == 1
    return Model(
        row,
        width,
        tuple(line[unit] for line in good),
        good[0]["parameters"],
        statistics.fmean(times) if timed else None,
        good[0].get("machine"),
        len(good) == len(lines) and not any(map(suspect, good)) and not any(trial.layer.oracle for trial in trials),
        any(map(is_estimate, good)),
    )
