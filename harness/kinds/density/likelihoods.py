"""The likelihoods of a density suite by row, column and repetition, which of them compete, and curves of training."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pandas as pd

from harness.core.errors import UserError
from harness.core.records import Record
from harness.core.settings import DataRef, TrainingSettings
from harness.core.third_party import is_third_party
from harness.kinds.density.trial import DensityTrial
from harness.reporting.frame import Results, Row, groups_of, rows_of, shortened_reason
from harness.reporting.page.answer import listed
from harness.reporting.statistics.statistics import Difference, paired_differences, sample_text
from harness.reporting.tables.cells import fallbacks

if TYPE_CHECKING:
    from harness.planning.plan import Plan

UNKNOWN = "unknown"  # unit of third-party data on which no trial has finished
UNITS = {"bits_per_dim": "bits/dim", "nats_per_dim": "nats/dim", UNKNOWN: "per dim"}
STANDARD_ERROR = "± standard error over test examples, of one seed"
BELOW_FLOOR = "below the resolution floor"
ENDED = ("diverged", "error", "oom", "timeout")  # statuses of failed trials that no later run repeats by itself
WARNING = "data warning"  # the note of a record

ESTIMATE, IMPROVING, EXEMPT, DOUBT = "≈", "‡", "§", "†"
MARKED = {IMPROVING: "improving", EXEMPT: "exempt", DOUBT: "doubt"}
"""Mark after a likelihood -> the column of `density` by which one of its trials has it."""

REMARKS = {
    "±": STANDARD_ERROR,
    ESTIMATE: f"{ESTIMATE} an estimate of the likelihood: the flow's log-determinant is not computed exactly",
    DOUBT: f"{DOUBT} not a likelihood to compare: the audit failed or the value is below the resolution floor",
    EXEMPT: f"{EXEMPT} not tuned, so in no ranking",
}
"""Mark in a cell -> the remark that explains it; that of `IMPROVING` is `improving_remark`."""


@lru_cache(maxsize=1)  # as of `density`
def units(results: Results) -> dict[str, str]:
    """Return the measure of each data set, as its trials say; that of its kind of data where none says it."""
    recorded = results.of_kind("density").dropna(subset="unit").drop_duplicates("dataset")
    measures = dict(zip(recorded["dataset"], recorded["unit"], strict=True))
    for trial in results.plan.trials:
        if isinstance(trial, DensityTrial) and trial.data.label not in measures:
            measures[trial.data.label] = _planned_unit(trial.data)
    return dict.fromkeys(results.plan.columns, "bits_per_dim") | measures


def _planned_unit(data: DataRef) -> str:
    """Return the measure of trials on this data: nats of sequences, bits of images, which those on no lattice lack."""
    from harness.datasets import find_dataset

    if is_third_party(data.name):  # a report runs no third-party code
        return UNKNOWN
    try:
        sequence = find_dataset(data.name).kind(dict(data.options)) == "sequence"
    except UserError:  # a data set of another version
        sequence = False
    return "nats_per_dim" if sequence else "bits_per_dim"


@lru_cache(maxsize=1)  # most tables and figures of a report ask for it
def density(results: Results) -> pd.DataFrame:
    """Return the rows of density trials with further columns.

    They are `pair`, by which rows are paired: the repetition or, without repetitions, the seed; `measure`, the column
    of the likelihood in the unit of its data set; `value`, the likelihood, NA for a trial that has none; `ranked`, the
    likelihood that stands for it in rankings (see `_imputed`); `doubt`, why it is not to be compared, NA where it may
    be; `estimated`, whether its log-determinant was estimated; `improving`,
    whether validation still improved when training reached its bound; `tuned`, whether validation chose its settings;
    `exempt`, whether it did not although it did for other layers.
    """
    frame = results.of_kind("density")
    trials = {trial.id: trial for trial in results.plan.trials if isinstance(trial, DensityTrial)}
    improving = [_still_improved(line, trials[line.id].training) for line in rows_of(frame)]
    tuned = pd.Series([trials[name].tuning is not None for name in frame["id"]], index=frame.index, dtype=bool)
    measure = frame["dataset"].map(units(results))
    value = frame["nats_per_dim"].where(measure == "nats_per_dim", frame["bits_per_dim"])
    suspect = (frame["audit"] == "failed").fillna(False) | frame["below_floor"].fillna(False)
    doubt = frame["audit_reason"].fillna(BELOW_FLOOR).map(shortened_reason)
    value = value.where(frame["status"] == "ok")
    return frame.assign(
        pair=frame["repetition"].fillna(frame["seed"]),
        measure=measure,
        value=value,
        ranked=_imputed(frame, value),
        doubt=doubt.where(suspect),
        estimated=frame["estimate_error"].notna(),
        improving=pd.Series(improving, index=frame.index, dtype=bool),
        tuned=tuned,
        exempt=~tuned & tuned.groupby(frame["dataset"]).transform("any"),
    )


def _imputed(frame: pd.DataFrame, value: pd.Series) -> pd.Series:
    """Return the likelihoods, with the worst one of its row on its data set in place of that of a failed trial.

    A failure counts against its layer, and takes no other repetition from it. A row of which more than half of the
    trials failed on a data set, and a trial that a later run repeats, get none.
    """
    of_row = value.groupby([frame["dataset"], frame["layer"]])
    worst = of_row.transform("max").where(of_row.transform("count") * 2 >= of_row.transform("size"))
    return value.fillna(worst.where(frame["status"].isin(ENDED)))


def data_warning(frame: pd.DataFrame) -> str | None:
    """Return the warnings on the data that trials have read (see `harness.pipeline.data_remarks`), if any."""
    warnings: dict[str, dict[str, None]] = {}
    for dataset, notes in zip(frame["dataset"], frame["notes"], strict=True):
        if WARNING in notes:
            warnings.setdefault(dataset, {})[notes[WARNING]] = None
    parts = []
    for dataset, (first, *others) in sorted(warnings.items()):
        more = f" (and {len(others)} other warning{'s' * (len(others) > 1)} on further splits)" if others else ""
        parts.append(f"{dataset}: {first}{more}")
    return "; ".join(parts) or None


def _still_improved(line: Row, training: TrainingSettings) -> bool:
    """Return whether a trial ended at its bound of steps with patience left or, without one, at its best step."""
    unknown = any(map(pd.isna, (line.steps, line.best_step, line.stopped_early)))
    if line.status != "ok" or unknown or line.stopped_early:
        return False
    since = line.steps - line.best_step
    if training.patience is None:
        return bool(since == 0)
    return bool(math.ceil(since / training.evaluate_every) < training.patience)


def members_of(plan: Plan, label: str) -> tuple[str, ...]:
    """Return the data sets of a column: itself, or those of an average."""
    return plan.averages.get(label, (label,))


def of_column(frame: pd.DataFrame, plan: Plan, label: str) -> dict[str, pd.DataFrame]:
    """Return the rows of `density` in a column, or an average in the unit of its first data set, by layer in order."""
    members = members_of(plan, label)
    trials = frame[frame["dataset"].isin(members)]
    unit = trials.loc[trials["dataset"] == members[0], "measure"].head(1)
    alike = trials["measure"].isin(unit)
    trials = trials.assign(value=trials["value"].where(alike), ranked=trials["ranked"].where(alike))
    return by_layer(trials, plan)


def by_layer(frame: pd.DataFrame, plan: Plan) -> dict[str, pd.DataFrame]:
    """Return the rows of each layer of the plan, in its order; none of a layer without any."""
    groups = dict(groups_of(frame, "layer"))
    return {row: groups.get(row, frame.iloc[:0]) for row in plan.rows}


def comparable(frame: pd.DataFrame) -> bool:
    """Return whether there are trials, all of which have a likelihood that may be compared."""
    return not frame.empty and bool(frame["value"].notna().all() and frame["doubt"].isna().all())


def competes(frame: pd.DataFrame) -> bool:
    """Return whether the trials may be ranked: with imputed values comparable, and validation chose all settings."""
    return comparable(frame.assign(value=frame["ranked"])) and bool(frame["tuned"].all())


def by_pair(frame: pd.DataFrame, column: str = "value") -> dict[int, float]:
    """Return seed or repetition -> value; of several data sets their mean. All trials have a value in the column."""
    values: dict[int, list[float]] = {}
    for pair, value in zip(frame["pair"], frame[column], strict=True):
        values.setdefault(int(pair), []).append(float(value))
    return {pair: statistics.fmean(of_pair) for pair, of_pair in values.items()}


def repeated(frame: pd.DataFrame) -> bool:
    """Return whether trials are by repetition, and not by seed alone."""
    return bool(frame["repetition"].notna().any())


def share_of(frame: pd.DataFrame) -> float | None:
    """Return the test share of trials by repetition, for their statistics; None of trials by seed.

    It is the mean over the trials that know theirs; of several data sets, the largest of their means.
    """
    shares = frame["test_share"].groupby(frame["dataset"]).mean().dropna()
    return (float(shares.max()) if len(shares) else 0.0) if repeated(frame) else None


def marks(frame: pd.DataFrame) -> str:
    """Return the marks that follow a value of these trials."""
    return "".join(f" {mark}" for mark, column in MARKED.items() if frame[column].dropna().astype(bool).any())


def marked(text: str, frame: pd.DataFrame) -> str:
    """Return a value of these trials with all of its marks."""
    return (f"{ESTIMATE} " if frame["estimated"].any() else "") + text + marks(frame)


def explained(rows: Iterable[Iterable[str]], frame: pd.DataFrame) -> tuple[str, ...]:
    """Return the remarks that explain the marks in the cells of a table of these trials."""
    cells = "".join(cell for row in rows for cell in row)
    remarks = tuple(remark for mark, remark in REMARKS.items() if mark in cells)
    return (*remarks, *improving_remark(frame)) if IMPROVING in cells else remarks


def improving_remark(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return the remark on trials that still improved at their bound of steps."""
    improving = frame[frame["value"].notna() & frame["improving"]]
    if improving.empty:
        return ()
    bounds = {column: f"{trials['steps'].iloc[0]:,} steps" for column, trials in groups_of(improving, "dataset")}
    return (
        f"{IMPROVING} still improving: training reached its bound of {per_column(bounds, ' and ')} before validation "
        "stopped improving",
    )


def per_column(texts: Mapping[str, str], between: str = "; ", form: str = "{text} on {columns}") -> str:
    """Return the text that all columns share, or each text with its columns."""
    columns: dict[str, list[str]] = {}
    for column, text in texts.items():
        columns.setdefault(text, []).append(column)
    if len(columns) < 2:
        return "".join(columns)
    return between.join(form.format(text=text, columns=listed(names)) for text, names in columns.items())


def standard_error(frame: pd.DataFrame) -> float | None:
    """Return the standard error over test examples of the mean of rows of one seed, as independent; None if unknown."""
    errors = frame["standard_error"]
    if frame["pair"].nunique() != 1 or errors.isna().any():
        return None
    return math.hypot(*errors) / len(errors)


@dataclass(frozen=True)
class Ranking:
    """The layers of one column that compete: all their trials are tuned and have a likelihood that may be compared."""

    rows: Mapping[str, Mapping[int, float]]  # label -> seed or repetition -> value, in plan order, without oracles
    differences: Mapping[tuple[str, str], Difference]  # of every two rows, first - second
    share: float | None = None  # the test share of repetitions; None of seeds alone

    @property
    def sample(self) -> str:
        """The number of pairs: "8 seeds"."""
        return sample_text(len(self.common), self.share is not None)

    @property
    def common(self) -> list[int]:
        """The seeds or repetitions that all rows have."""
        return sorted(set.intersection(*(set(values) for values in self.rows.values()))) if self.rows else []

    @property
    def firsts(self) -> dict[str, int]:
        """The number of seeds or repetitions on which each row has the lowest value of all; equal rows share it."""
        lowest = {pair: min(values[pair] for values in self.rows.values()) for pair in self.common}
        return {row: sum(values[pair] == low for pair, low in lowest.items()) for row, values in self.rows.items()}

    @property
    def means(self) -> dict[str, float]:
        """The mean of each row over its seeds or repetitions."""
        return {row: statistics.fmean(values.values()) for row, values in self.rows.items()}

    @property
    def order(self) -> list[str]:
        """The rows from the lowest mean to the highest."""
        means = self.means
        return sorted(means, key=lambda row: means[row])

    @property
    def best(self) -> str | None:
        """The row of the lowest mean."""
        return next(iter(self.order), None)

    @property
    def leaders(self) -> list[str]:
        """The best row, and those that are not shown to differ from it; empty where no lead has an interval."""
        behind = {row: self.behind(row) for row in self.order}
        if all(lead is None or lead.interval is None for lead in behind.values()):
            return []
        return [row for row, lead in behind.items() if row == self.best or (lead is not None and not lead.separated)]

    @property
    def trailing(self) -> list[str]:
        """The rows that are shown to be behind the best one, from the lowest mean to the highest."""
        leads = ((row, self.behind(row)) for row in self.order)
        return [row for row, lead in leads if lead is not None and lead.separated]

    @property
    def bold(self) -> list[str]:
        """The leaders where tests chose them; empty where all rows lead, which tells nothing."""
        return self.leaders if self.tested and len(self.leaders) < len(self.rows) else []

    @property
    def tested(self) -> bool:
        """True if there are seeds enough for a test of every difference."""
        return all(difference.p is not None for difference in self.differences.values())

    def behind(self, row: str) -> Difference | None:
        """Return the difference of a row from the best one; None for that one, and for one that does not compete."""
        return None if self.best is None else self.difference(row, self.best)

    def difference(self, first: str, second: str) -> Difference | None:
        """Return first - second; None for one row alone, and where one does not compete."""
        if (first, second) in self.differences:
            return self.differences[first, second]
        turned = self.differences.get((second, first))
        return None if turned is None else -turned


@lru_cache(maxsize=64)  # tables, figures and the answer ask for the same ones
def ranking(results: Results, label: str) -> Ranking:
    """Return the competition of one column, an average of columns included."""
    told = oracles(results.plan)
    columns = of_column(density(results), results.plan, label)
    competing = {row: trials for row, trials in columns.items() if row not in told and competes(trials)}
    rows = {row: by_pair(trials, "ranked") for row, trials in competing.items()}
    share = share_of(pd.concat(competing.values())) if competing else None
    return Ranking(rows, paired_differences(rows, share), share)


def fallback_note(results: Results) -> tuple[str, ...]:
    """Return a remark on seconds of training without the compiled kernels; none where all trials had them."""
    reasons = fallbacks(results)
    lacking = dict.fromkeys(reasons[name] for name in results.of_kind("density")["id"] if name in reasons)
    return tuple(f"seconds of plain PyTorch, as there were no compiled kernels: {why}" for why in lacking)


def oracles(plan: Plan) -> set[str]:
    """Return the rows that know the permutation of the data."""
    return {layer.row for trial in plan.trials for layer in trial.layers_under_test if layer.oracle}


Curve = list[tuple[float, float]]


def curve(record: Record, name: str, axis: str = "step") -> Curve:
    """Return the finite points (step or seconds, value) of one curve of a record."""
    pairs = zip(record.curves.get(axis, []), record.curves.get(name, []), strict=False)
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def average(seeds: Sequence[Curve]) -> Curve:
    """Return the mean over seeds at every step that one of them has; those that stopped early count up to there."""
    by_step: dict[float, list[float]] = {}
    for points in seeds:
        for step, value in points:
            by_step.setdefault(step, []).append(value)
    return [(step, statistics.fmean(by_step[step])) for step in sorted(by_step)]


def trained(results: Results, name: str) -> pd.DataFrame:
    """Return the rows of density trials whose record has this curve."""
    frame = results.of_kind("density")
    return frame[[trial in results.records and bool(curve(results.records[trial], name)) for trial in frame["id"]]]
