"""The tables of a suite of conformance: what each layer reports against what it does, and the faults with commands."""

from __future__ import annotations

import json
import shlex

import pandas as pd

from harness.core.settings import LayerRef
from harness.kinds.conformance.trial import ConformanceTrial
from harness.reporting.frame import Results, Row, groups_of, rows_of
from harness.reporting.tables.cells import EMPTY, Notes, failed_cell, shape_text
from harness.reporting.tables.rendering import Table, one_line

HEADER = (
    "layer",
    "on",
    "conforms",
    "log-det off by, random",
    "log-det off by, trained",
    "round trips off by, random",
    "round trips off by, trained",
    "reverse log-det off by",
    "rules not kept",
)
GROUPS = (("", 3), ("log-det off by", 2), ("round trips off by", 2), ("", 2))
CAPTION = (
    "Each layer in float32, with weights away from initialisation and after 100 steps of Adam on correlated normal "
    "events: its log-determinant against slogdet of the matrix that it applies (nats), the larger of both round trips "
    "(relative to the largest entry), the log-determinant that its inverse returns (nats, the larger of both), and the "
    "rules of check-layer that it does not keep."
)


def tables(results: Results) -> list[Table]:
    """Return the table of all layers, and that of the faults if there are any."""
    notes = Notes()
    rows = [_row(own, notes) for _, own in groups_of(results.frame, ["layer", "dataset"])]
    name = f"{results.plan.suite}-conformance"
    made = [Table(name, CAPTION, HEADER, tuple(rows), notes.numbered(), GROUPS, words=frozenset({8}))]
    faults = faults_of(results)
    if faults:
        caption = (
            "The first fault found of each layer that does not conform, and the command that shows it. A library may "
            "document a behaviour that is a fault here: docs/tutorials/libraries.md."
        )
        header = ("layer", "library", "fault", "command")
        made.append(Table(f"{results.plan.suite}-faults", caption, header, faults, words=frozenset({1, 2, 3})))
    return made


def faults_of(results: Results) -> tuple[tuple[str, ...], ...]:
    """Return (layer, library, fault, command) of each layer that does not conform, once."""
    trials = {trial.id: trial for trial in results.plan.trials if isinstance(trial, ConformanceTrial)}
    found: dict[str, tuple[str, ...]] = {}
    for line in rows_of(results.frame[results.frame["conforms"].eq(False)]):
        library = "" if pd.isna(line.remark) else one_line(line.remark)
        found.setdefault(line.layer, (line.layer, library, _fault(line), command(trials[line.id].layer)))
    return tuple(found.values())


def command(layer: LayerRef) -> str:
    """Return the command line that checks the layer alone."""
    options = [f"--set {shlex.quote(f'{name}={_text(value)}')}" for name, value in layer.options]
    return " ".join(["python -m harness check-layer", shlex.quote(layer.layer), *options])


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _fault(line: Row) -> str:
    if pd.notna(line.finding):
        return one_line(line.finding)
    return (
        f"with {line.weights} weights the log-det is {_number(line.log_det)} and should be "
        f"{_number(line.log_det_true)}; round trips are off by {_small(line.inverse_error)}"
    )


def _row(own: pd.DataFrame, notes: Notes) -> tuple[str, ...]:
    lines = {line.weights: line for line in rows_of(own)}
    random, trained = lines["random"], lines["trained"]
    label = (random.layer, shape_text(random.dataset))
    if random.status != "ok":
        return (*label, failed_cell(random, notes), *[EMPTY] * (len(HEADER) - 3))
    return (
        *label,
        "yes" if random.conforms and trained.conforms else "no",
        *(_small(line.log_det_error) for line in (random, trained)),
        *(_small(line.inverse_error) for line in (random, trained)),
        _small(own["reverse_log_det_error"].max()),
        EMPTY if pd.isna(random.failed_rules) else random.failed_rules,
    )


def _small(value: float) -> str:
    return EMPTY if pd.isna(value) else f"{value:.1e}" if value else "0"


def _number(value: float) -> str:
    return EMPTY if pd.isna(value) else f"{value:.4g}"
