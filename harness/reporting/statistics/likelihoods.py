"""The likelihoods of a density suite by row, column and seed, and which of them compete with each other."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError
from harness.reporting.statistics.statistics import Difference, Estimate, paired_differences, winner
from harness.reporting.tables.cells import Line, shortened

if TYPE_CHECKING:
    from harness.planning.plan import Plan

UNKNOWN = "unknown"  # unit of third-party data on which no trial has finished
UNITS = {"bits_per_dim": "bits/dim", "nats_per_dim": "nats/dim", UNKNOWN: "per dim"}
ESTIMATE = "≈"  # before a likelihood that is an estimate
ESTIMATED = f"{ESTIMATE} an estimate of the likelihood: the flow's log-determinant is not computed exactly"
SUSPECT = "† not a likelihood to compare: the audit failed or the value is below the resolution floor"


def unit_of(density: Sequence[Line], column: str) -> str:
    """Return the measure of a data set, as its trials state it; that of its kind of data if none has finished."""
    lines = [line for line in density if line["dataset"] == column]
    known = next(filter(None, (line.get("unit") for line in lines)), None)
    return known or (_planned_unit(lines[0]["data"]) if lines else "bits_per_dim")


def _planned_unit(data: Mapping[str, Any]) -> str:
    """Return the measure of a trial on this data: nats for sequences, bits for images.

    Images on no lattice are measured in nats as well, which is known only once a trial has read them. A report runs no
    third-party code, so that the unit of third-party data is unknown.
    """
    from harness.datasets import find_dataset

    if ":" in data["name"]:
        return UNKNOWN
    try:
        sequence = find_dataset(data["name"]).kind(data["options"]) == "sequence"
    except UserError:  # a data set of another version
        sequence = False
    return "nats_per_dim" if sequence else "bits_per_dim"


def suspect(line: Line) -> str | None:
    """Why a value is not to be compared: its audit failed, the resolution floor included; None where it may be."""
    if line.get("audit") != "failed" and not line.get("below_floor"):
        return None
    return shortened(line.get("audit_reason") or "below the resolution floor")


def is_estimate(line: Line) -> bool:
    """Whether the log-determinant was estimated, and the likelihood with it."""
    return line.get("estimate_error") is not None


def marked(text: str, doubtful: bool, estimated: bool) -> str:
    """Return a value with the marks of an estimate and of what is not to be compared."""
    return (f"{ESTIMATE} " if estimated else "") + text + (" †" if doubtful else "")


def has_value(line: Line, unit: str) -> bool:
    """Whether a trial came to a likelihood, or to another measure."""
    return line["status"] == "ok" and line.get(unit) is not None


def by_seed(lines: Sequence[Line], unit: str) -> dict[int, float]:
    """Seed -> value; of several columns their mean. All lines have a value."""
    found: dict[int, list[float]] = {}
    for line in lines:
        found.setdefault(line["seed"], []).append(line[unit])
    return {seed: statistics.fmean(values) for seed, values in found.items()}


def members_of(plan: Plan, label: str) -> tuple[str, ...]:
    """The data sets of a column: itself, or those of an average."""
    return plan.averages.get(label, (label,))


@dataclass(frozen=True)
class Ranking:
    """The rows of one column that compete: all their seeds have a likelihood that may be compared.

    Attributes:
        rows: label -> seed -> value, in plan order; rows that are told something (oracles) are none of them.
        differences: of every two rows, first - second.
    """

    rows: dict[str, dict[int, float]]
    differences: dict[tuple[str, str], Difference]

    @property
    def best(self) -> str | None:
        """The row of the lowest mean."""
        return min(self.rows, key=lambda row: statistics.fmean(self.rows[row].values()), default=None)

    @property
    def winner(self) -> str | None:
        """The best row where the test tells it from every other one."""
        return winner({row: statistics.fmean(values.values()) for row, values in self.rows.items()}, self.differences)

    def behind(self, row: str) -> Difference | None:
        """How far a row is behind the best one; None for that one itself, and for one that does not compete."""
        best = self.best
        if best is None or row == best or row not in self.rows:
            return None
        if (row, best) in self.differences:
            return self.differences[row, best]
        found = self.differences[best, row]
        e = found.estimate
        turned = Estimate(-e.mean, None if e.high is None else -e.high, None if e.low is None else -e.low, e.seeds)
        return Difference(turned, found.p, None if found.effect is None else -found.effect)


def ranking(plan: Plan, density: Sequence[Line], label: str) -> Ranking:
    """The competition of one column, an average of columns included."""
    members = members_of(plan, label)
    unit = unit_of(density, members[0])
    told = {layer.row for trial in plan.trials for layer in trial.layers_under_test if layer.oracle}
    rows = {}
    for row in plan.rows:
        lines = [line for line in density if line["layer"] == row and line["dataset"] in members]
        if lines and row not in told and all(has_value(line, unit) and not suspect(line) for line in lines):
            rows[row] = by_seed(lines, unit)
    return Ranking(rows, paired_differences(rows))
