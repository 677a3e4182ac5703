"""The layers of density suites over their data sets: ranks, effects, outcomes against controls, and their table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

import numpy as np
import pandas as pd

from harness.core.errors import UserError
from harness.core.settings import DataRef
from harness.core.third_party import is_third_party
from harness.kinds.density.captions import sentences
from harness.kinds.density.comparisons import MARGIN, controls_of, distance_of, margin_of
from harness.kinds.density.likelihoods import Ranking, ranking, units
from harness.kinds.density.tables.differences import control_of
from harness.kinds.density.trial import DensityTrial
from harness.planning.plan import Plan
from harness.reporting.compare.comparison import Thresholds
from harness.reporting.frame import Results
from harness.reporting.page.answer import Finding, listed
from harness.reporting.statistics.across import (
    LEAST_DATASETS,
    LEAST_LAYERS,
    Friedman,
    Outcome,
    Standings,
    complete,
    outcome,
    smallest_p,
)
from harness.reporting.statistics.statistics import SIGNIFICANCE, p_text
from harness.reporting.tables.cells import EMPTY
from harness.reporting.tables.rendering import Table

LEAST_DISTANCE = Thresholds().likelihood  # nats or bits per dimension, of the controls: closer ones are no scale
IMAGES, SEQUENCES, TABLES, PERMUTED = "images", "sequences", "tables of numbers", "without order"
RANK, OUTCOMES = "average rank", "wins, ties, losses"
SHOWN = 3  # layers of a family, and pairs, that a sentence names


@dataclass(frozen=True, eq=False)
class DataColumn:
    """One data set of a run."""

    label: str  # of its suite as well, where two suites have a column of this name
    suite: str
    data: DataRef
    unit: str
    ranking: Ranking


@dataclass(frozen=True, eq=False)
class AcrossDatasets:
    """The layers of one or more runs, compared over their data sets."""

    columns: tuple[DataColumn, ...]  # the data sets that count, in plan order
    plan: Plan  # the first run's, with the rows and trials of all
    together: Standings  # the layers over all data sets
    families: dict[str, Standings]  # the same layers over the data sets of each family
    controls: tuple[str, ...]  # the control rows, in plan order, ranked or not
    reference: str | None  # the control from which leads are measured; None without it
    distances: dict[str, float]  # by data set, the distance of its controls, where it is a scale
    outcomes: dict[tuple[str, str], dict[str, Outcome]]  # (control, layer) -> data set -> outcome of the layer
    remarks: tuple[str, ...]  # on the layers and data sets that do not count, a sentence each

    @property
    def layers(self) -> list[str]:
        """The layers that are ranked on every data set, in plan order."""
        return list(map(str, self.together.means.columns))


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
            remarks.append(f"left out: {row}, not ranked on {', '.join(lacking)}")
    for column in ranked:
        lacking = [row for row in layers if row not in column.ranking.rows]
        if lacking:
            remarks.append(f"left out: {column.label}, on which {', '.join(lacking)} not ranked")
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
        families.setdefault(family_of(column.data, column.unit), []).append(column.label)
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
    together = Standings(kept, effects)
    return AcrossDatasets(columns, plan, together, parts, controls, reference, distances, outcomes, tuple(remarks))


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
        data = column.data  # of equal ones the flow, the training or the permutation may differ
        alike.setdefault((data.name, data.source, data.options, data.permute is not None), []).append(column)
    chosen = [max(group, key=lambda column: len(column.ranking.rows)) for group in alike.values()]
    remarks = []
    for column, group in zip(chosen, alike.values(), strict=True):
        others = [each.label for each in group if each is not column]
        if others:
            remarks.append(f"left out: {', '.join(others)}, with the same data as {column.label}")
    return chosen, remarks


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, tuple) and all(isinstance(part, str) for part in value))


def _dependent(columns: Sequence[DataColumn]) -> list[str]:
    """Return a remark on data sets of one source, such as the same images in order and permuted."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for column in columns:
        names = tuple(option for option in column.data.options if _is_text(option[1]))  # not its size or the part taken
        alike.setdefault((column.data.name, column.data.source, names), []).append(column.label)
    return [
        f"{', '.join(labels)} are of one source: the tests take them for independent data sets, which they may not be"
        for labels in alike.values()
        if len(labels) > 1
    ]


def across_table(compared: AcrossDatasets, name: str) -> Table:
    """Return a row per layer, by average rank, with its ranks by family, its outcomes and its effect."""
    together = compared.together
    total = len(together.means)
    header, columns = ["layer", f"{RANK}, all {total} ↓"], [_text_of(together.average_ranks)]
    if len(compared.families) > 1:
        header += [f"{RANK}, {family} ({len(part.means)}) ↓" for family, part in compared.families.items()]
        columns += [_text_of(part.average_ranks) for part in compared.families.values()]
    groups = [("", 1), (RANK, len(columns))]
    with_leads = [column.ranking.leaders for column in compared.columns if column.ranking.leaders]
    if with_leads:
        groups.append(("", 1))
        header.append(f"not behind, of {len(with_leads)} ↑")
        columns.append({layer: str(sum(layer in leaders for leaders in with_leads)) for layer in compared.layers})
    for control in compared.controls:
        cells = {layer: _outcomes(compared, control, layer) for layer in compared.layers}
        if any(cell != EMPTY for cell in cells.values()):
            header.append(f"{OUTCOMES}, against {control}")
            columns.append(cells)
    against = len(header) - sum(span for _, span in groups)
    groups += [(OUTCOMES, against)] if against else []
    if len(together.effects):
        groups.append(("", 1))
        header.append("share of the controls' distance, median [lowest, highest] ↑")
        columns.append({layer: _effect(compared, layer) for layer in compared.layers})
    rows = tuple((layer, *(column[layer] for column in columns)) for layer in together.average_ranks.index)
    return Table(name, _caption(compared), tuple(header), rows, tuple(_notes(compared)), tuple(groups))


def _text_of(ranks: pd.Series) -> dict[str, str]:
    return {str(layer): f"{rank:.2f}" for layer, rank in ranks.items()}


def _outcomes(compared: AcrossDatasets, control: str, layer: str) -> str:
    outcomes = list(compared.outcomes[control, layer].values())
    return ", ".join(str(outcomes.count(each)) for each in get_args(Outcome)) if outcomes else EMPTY


def _effect(compared: AcrossDatasets, layer: str) -> str:
    effects = compared.together.effects[layer]
    if layer == compared.reference:
        return EMPTY
    return f"{effects.median():+.2f} [{effects.min():+.2f}, {effects.max():+.2f}]"


def _caption(compared: AcrossDatasets) -> str:
    names = [column.label for column in compared.columns]
    return sentences(
        "across",
        data_sets=len(names),
        names=listed(names),
        leads=any(column.ranking.leaders for column in compared.columns),
        margin=f"{MARGIN:.0%}",
        controls=compared.controls,
        reference=compared.reference,
        scaled=len(compared.together.effects),
    )


def _notes(compared: AcrossDatasets) -> Iterator[str]:
    """Yield the tests, the scales of the shares, and the layers and data sets that do not count."""
    together = compared.together
    test = together.friedman
    if test is not None:
        yield sentences("friedman", test.statistic, _friedman_text(together, test, compared.controls))
    if together.pairs is None:
        yield sentences("no_pairs", LEAST_DATASETS)
    else:
        smallest = _smallest_text(together)
        yield sentences("wilcoxon", together.comparisons, _apart(together), f"{SIGNIFICANCE:g}", smallest)
    scales = []
    for column in compared.columns:
        if column.label in compared.distances:
            means = {row: column.ranking.means[row] for row in compared.controls if row in column.ranking.rows}
            best, worst = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
            difference = column.ranking.difference(worst, best)
            doubt = "" if difference is not None and difference.separated else ", not shown to differ"
            scales.append(f"{column.label} {compared.distances[column.label]:.3f} ({worst} - {best}{doubt})")
    if scales:
        yield f"distance of the controls: {'; '.join(scales)}"
    yield from compared.remarks


def _apart(standings: Standings) -> list[str]:
    return [f"{better} before {other} ({p_text(p)})" for better, other, p in standings.apart()]


def _smallest_text(standings: Standings) -> str:
    """Return the smallest p that a pair could have had."""
    datasets = len(standings.effects)
    least = smallest_p(datasets)
    corrected = f"{min(1.0, least * standings.comparisons):.2g}"
    return sentences("smallest", datasets, f"{least:.2g}", corrected, standings.comparisons, standings.decidable)


def across_findings(compared: AcrossDatasets) -> list[Finding]:
    """Return the findings over all data sets and, where there are several, over each family."""
    together = compared.together
    made = [_finding(f"all {len(together.means)} data sets", together, compared.controls, len(together.means.columns))]
    if len(compared.families) > 1:
        for family, part in compared.families.items():
            number = len(part.means)
            subject = f"{family} ({number} data set{'s' * (number > 1)})"
            made.append(_finding(subject, part, compared.controls, SHOWN))
    return made


def _finding(subject: str, standings: Standings, controls: Sequence[str], shown: int) -> Finding:
    ranks = standings.average_ranks
    order = ", ".join(f"{layer} {rank:.1f}" for layer, rank in ranks.head(shown).items())
    text = f"{'Average' if shown >= len(ranks) else 'Lowest average'} ranks: {order}."
    test = standings.friedman
    if test is None:
        few, least = (
            ("data sets", LEAST_DATASETS) if len(standings.means) < LEAST_DATASETS else ("layers", LEAST_LAYERS)
        )
        return Finding(subject, "no test", "open", f"{text} There is no test below {least} {few}.")
    text += f" Friedman's test: {_friedman_text(standings, test, controls)}."
    if standings.pairs is not None:
        apart = _apart(standings)
        more = f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
        named = f"Pairs that differ: {'; '.join(apart[:SHOWN])}{more}" if apart else _smallest_text(standings)
        text += f" {named}."
    differ = (_without_controls(standings, controls) or test).p < SIGNIFICANCE  # a bad control is no finding
    return Finding(subject, "layers differ" if differ else "no difference shown", "good" if differ else "open", text)


def _friedman_text(standings: Standings, test: Friedman, controls: Sequence[str]) -> str:
    """Return p of the test of all layers and, where there are layers enough, of those that are no controls."""
    text = f"that all {standings.means.shape[1]} layers are equal has {p_text(test.p)}"
    alone = _without_controls(standings, controls)
    return text if alone is None else f"{text}, without the controls {p_text(alone.p)}"


def _without_controls(standings: Standings, controls: Sequence[str]) -> Friedman | None:
    present = set(controls) & set(standings.means)
    return standings.without(present).friedman if present else None


def across_frame(compared: AcrossDatasets) -> pd.DataFrame:
    """Return a row per data set and layer that counts: mean, rank, share, lead, and outcome against each control."""
    together = compared.together
    return pd.DataFrame(
        [
            {
                "dataset": column.label,
                "family": family_of(column.data, column.unit),
                "suite": column.suite,
                "layer": layer,
                "unit": column.unit,
                "mean": together.means.at[column.label, layer],
                "rank": together.ranks.at[column.label, layer],
                "share": together.effects[layer].get(column.label),
                "not_behind": layer in column.ranking.leaders,
            }
            | {
                f"against {control}": compared.outcomes[control, layer].get(column.label)
                for control in compared.controls
            }
            for column in compared.columns
            for layer in compared.layers
        ]
    )
