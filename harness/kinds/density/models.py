"""The trained models of a density suite by data set: each row at each coupling width, with its costs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from harness.core.settings import DataRef
from harness.kinds.density.likelihoods import comparable, competes, density, share_of, standard_error
from harness.kinds.density.trial import DensityTrial
from harness.kinds.density.tuning.searches import candidates_text, searches
from harness.reporting.frame import Results, groups_of
from harness.reporting.statistics.statistics import Estimate, estimate


@dataclass(frozen=True, eq=False)
class Model:
    """One row at one width on one data set."""

    row: str
    width: int
    trials: pd.DataFrame  # its rows of `density` that have a likelihood
    parameters: int
    seconds: float | None = None  # of training, mean over seeds; None unless all were trained on one kind of machine
    machine: str | None = None
    competes: bool = False  # all seeds are tuned and have a likelihood that may be compared, and the row is no oracle
    hollow: bool = False  # it is not to be compared: a seed has no such likelihood, it is an oracle, or was exempt
    oracle: bool = False

    @cached_property
    def estimate(self) -> Estimate:
        """The mean over the seeds or repetitions with its uncertainty."""
        return estimate(list(self.trials["value"]), standard_error(self.trials), share_of(self.trials))

    @property
    def mean(self) -> float:
        """The mean over the seeds or repetitions."""
        return self.estimate.mean


@dataclass(frozen=True)
class Field:
    """All models of one data set, tuned and trained alike but for their width."""

    name: str  # the columns
    unit: str  # of the likelihoods
    models: tuple[Model, ...]  # in plan order; none without a value


def fields(results: Results) -> list[Field]:
    """Return the models by data set; columns that differ in width alone are one."""
    plan = results.plan
    trials = {trial.id: trial for trial in plan.trials if isinstance(trial, DensityTrial)}
    frame = density(results).sort_values("dataset", key=lambda labels: labels.map(plan.columns.index), kind="stable")
    tunings = {column: candidates_text(tuned) if tuned else "" for column, tuned in searches(results).items()}
    firsts: dict[str, DataRef] = {}  # of the first repetition, as others have other splits and permutations
    for trial in trials.values():
        firsts.setdefault(trial.data.label, trial.data)
    numbers: dict[Any, int] = {}
    frame = frame.assign(
        field=[numbers.setdefault(_alike(trials[name], firsts, tunings), len(numbers)) for name in frame["id"]],
        width=[trials[name].flow.width for name in frame["id"]],
        oracle=[trials[name].layer.oracle for name in frame["id"]],
    )
    made = []
    for _, rows in groups_of(frame, "field"):
        models: dict[tuple[str, int], Model] = {}
        for (_, row, width), group in groups_of(rows, ["dataset", "layer", "width"]):
            if (row, width) not in models and group["value"].notna().any():  # in a second column it is the same model
                models[row, width] = _model(row, width, group)
        ordered = sorted(models.values(), key=lambda model: (plan.rows.index(model.row), model.width))
        made.append(Field(" and ".join(rows["dataset"].unique()), rows["measure"].iloc[0], tuple(ordered)))
    return made


def _alike(trial: DensityTrial, data_sets: Mapping[str, DataRef], tunings: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the settings that models of one field share."""
    label = trial.data.label
    data, tuning = data_sets[label].model_copy(update={"label": ""}), tunings[label]
    flow, training = trial.flow, trial.training
    settings = flow.backbone, flow.coupling, flow.reach, flow.levels, flow.steps
    return data, tuning, *settings, training.steps, training.batch_size


def _model(row: str, width: int, planned: pd.DataFrame) -> Model:
    good, oracle = planned[planned["value"].notna()], bool(planned["oracle"].any())
    seconds, machines = good["train_seconds"], good["machine"].unique()
    return Model(
        row,
        width,
        good,
        int(good["parameters"].iloc[0]),
        statistics.fmean(seconds) if seconds.notna().all() and len(machines) == 1 else None,
        machines[0],
        competes(planned) and not oracle,
        oracle or not comparable(planned) or bool(planned["exempt"].any()),
        oracle,
    )
