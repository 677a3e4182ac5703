"""The differences of every two ranked layers as data: comparisons.csv."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations
from typing import Any

import pandas as pd

from harness.kinds.density.captions import sources_of
from harness.kinds.density.likelihoods import UNITS, Ranking, members_of, oracles, ranking, units
from harness.kinds.density.trial import DensityTrial
from harness.planning.plan import Plan
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import LEAST_FOR_STUDENT

FILE = "comparisons.csv"
MEASURES = ("p", "p_raw", "separated", "effect", "detectable", "leads")  # attributes of a difference
MARGIN = 0.05  # of the distance between controls
LAYERS_OF_CONTROLS = ("fixed", "scale")  # beside a 1x1 convolution that keeps the mixer

COLUMNS = {
    **dict.fromkeys(("dataset", "first", "second", "unit"), "string"),
    "pairs": "Int64",
    **dict.fromkeys(("difference", "low", "high", "p", "p_raw"), "Float64"),
    "separated": "boolean",
    **dict.fromkeys(("effect", "detectable", "leads", "margin", "p_equivalent"), "Float64"),
    "sources": "string",
}
"""Name -> pandas type of every column; `harness.comparisons` says what they mean."""


def comparisons(results: Results, margin: float | None = None) -> pd.DataFrame:
    """Return a row for every two ranked layers of each data set and average (see `harness.comparisons`)."""
    plan = results.plan
    controls = controls_of(plan)
    rows = [row for label in (*plan.columns, *plan.means) for row in _rows(results, label, controls, margin)]
    return pd.DataFrame(rows, columns=list(COLUMNS), dtype=object).astype(COLUMNS)


def verdict_fault(plan: Plan) -> str | None:
    """Return why no two layers of a plan can be shown to differ, whatever its results; None if they can be."""
    repeats = [_rankable(plan, label) for label in (*plan.columns, *plan.means)]
    most = max(map(len, repeats), default=0)
    if most < 2:
        return (
            f"{most} of its {len(plan.rows)} layers can be ranked on a data set, and a verdict compares two: rows that "
            "are tuned and no oracles. Give a section `tuning:`, and two or more such rows"
        )
    shared = max(len(a & b) for rows in repeats for a, b in combinations(rows.values(), 2))
    if shared < LEAST_FOR_STUDENT:
        return (
            f"its layers have {shared} seeds or repetitions in common, and an interval needs {LEAST_FOR_STUDENT} or "
            "more: give --seeds, or `repetitions:` in the profile"
        )
    return None


def _rankable(plan: Plan, label: str) -> dict[str, set[int]]:
    """Return the seeds or repetitions of each row that `ranking` may rank on a data set or an average."""
    members, rows = members_of(plan, label), dict[str, set[int]]()
    trials = [trial for trial in plan.trials if isinstance(trial, DensityTrial) and trial.column in members]
    for trial in trials:
        rows.setdefault(trial.layer.row, set()).add(trial.repeat_index)
    unranked = oracles(plan) | {trial.layer.row for trial in trials if trial.tuning is None}
    return {row: pairs for row, pairs in rows.items() if row not in unranked}


def controls_of(plan: Plan) -> tuple[str, ...]:
    """Return the control rows: two 1x1 convolutions in each step, fixed maps and a scale for each entry; no oracle."""
    layers = [trial.layer for trial in plan.trials if isinstance(trial, DensityTrial)]
    controls = {
        layer.row
        for layer in layers
        if layer.layer in LAYERS_OF_CONTROLS or (layer.layer == "conv1x1" and layer.keep_mixer)
    }
    return tuple(row for row in plan.rows if row in controls)


def distance_of(controls: Collection[str], competition: Ranking) -> float:
    """Return the distance of the best control's mean from the worst one's; 0 where fewer than two are ranked."""
    means = [mean for row, mean in competition.means.items() if row in controls]
    return max(means) - min(means) if means else 0.0


def margin_of(controls: Collection[str], competition: Ranking) -> float | None:
    """Return the difference below which layers count as equal: a part of the distance between the controls.

    The distance is that of the best control's mean from the worst one's, over two 1x1 convolutions in each step, fixed
    maps and a scale for each entry. It is what mixing, of any kind or none, makes on this data with this backbone, and
    so a scale that needs no setting and has the unit of the data: likelihoods near zero, or of data with a fine
    lattice, make a share of the value itself meaningless. None where fewer than two controls are ranked.
    """
    distance = distance_of(controls, competition)
    return MARGIN * distance if distance > 0 else None


def _rows(results: Results, label: str, controls: Collection[str], margin: float | None) -> Iterator[dict[str, Any]]:
    competition, members = ranking(results, label), members_of(results.plan, label)
    unit = UNITS[units(results)[members[0]]]
    covered = ", ".join(sources_of(results, members))
    within = margin_of(controls, competition) if margin is None else margin
    for (first, second), difference in competition.differences.items():
        low, high = difference.interval or (None, None)
        of_difference = {name: getattr(difference, name) for name in MEASURES}
        yield of_difference | {
            "dataset": label,
            "first": first,
            "second": second,
            "unit": unit,
            "pairs": len(difference.values),
            "difference": difference.estimate.mean,
            "low": low,
            "high": high,
            "margin": within,
            "p_equivalent": None if within is None else difference.equivalence(within),
            "sources": covered or None,
        }
