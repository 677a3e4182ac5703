"""The report of a suite that checks layers: what each reports against what it does, and the faults with commands."""

from __future__ import annotations

import json
import shlex
from functools import cached_property

import pandas as pd

from harness.core.settings import LayerRef
from harness.core.texts import one_line
from harness.kinds.conformance.trial import ConformanceTrial
from harness.reporting.frame import Results, groups_of, rows_of
from harness.reporting.page.answer import Answer, Finding, Tone, listed
from harness.reporting.report import Report
from harness.reporting.tables.cells import EMPTY, Notes, failed_cell, shape_text
from harness.reporting.tables.rendering import Table

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
FAULTS_CAPTION = (
    "The first fault found of each layer that does not conform, and the command that shows it. A library may document "
    "a behaviour that is a fault here: docs/how-to/libraries.md."
)


class ConformanceReport(Report, kind="conformance"):
    """The layers that conform, and the faults of the others."""

    @cached_property
    def tables(self) -> list[Table]:
        """The table of all layers, and that of the faults if there are any."""
        notes = Notes()
        rows = tuple(_row(lines, notes) for _, lines in groups_of(self.results.frame, ["layer", "dataset"]))
        name, faults = self.results.plan.suite, faults_of(self.results)
        made = [Table(f"{name}-conformance", CAPTION, HEADER, rows, notes.numbered(), GROUPS, words=frozenset({8}))]
        if faults:
            header = ("layer", "library", "fault", "command")
            made.append(Table(f"{name}-faults", FAULTS_CAPTION, header, faults, words=frozenset({1, 2, 3})))
        return made

    @cached_property
    def answer(self) -> Answer | None:
        """The layers that conform and those that do not; None before any was checked."""
        conforms = self.results.frame.dropna(subset="conforms").groupby("layer", sort=False)["conforms"].all()
        verdicts: tuple[tuple[str, Tone, pd.Series], ...] = (
            ("faulty", "bad", ~conforms),
            ("no fault found", "good", conforms),
        )
        findings = [
            Finding(f"{len(rows)} of {len(conforms)} layers", verdict, tone, f"{listed(rows)}.")
            for verdict, tone, chosen in verdicts
            if (rows := list(conforms[chosen].index))
        ]
        return Answer(tuple(findings)) if findings else None


def faults_of(results: Results) -> tuple[tuple[str, ...], ...]:
    """Return (layer, library, fault, command) of each layer that does not conform, once."""
    layers = {trial.id: trial.layer for trial in results.plan.trials if isinstance(trial, ConformanceTrial)}
    faults = []
    for line in rows_of(results.frame[results.frame["conforms"].eq(False)].drop_duplicates("layer")):
        finding = line.finding
        if pd.isna(finding):
            finding = (
                f"with {line.weights} weights the log-det is {_number(line.log_det, '.4g')} and should be "
                f"{_number(line.log_det_true, '.4g')}; round trips are off by {_number(line.inverse_error)}"
            )
        library = "" if pd.isna(line.remark) else one_line(line.remark)
        faults.append((line.layer, library, one_line(finding), command(layers[line.id])))
    return tuple(faults)


def command(layer: LayerRef) -> str:
    """Return the command line that checks the layer alone."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in layer.options}
    options = [f"--set {shlex.quote(f'{name}={text}')}" for name, text in texts.items()]
    return " ".join(["python -m harness check-layer", shlex.quote(layer.layer), *options])


def _row(lines: pd.DataFrame, notes: Notes) -> tuple[str, ...]:
    by_weights = {line.weights: line for line in rows_of(lines)}
    both = random, trained = by_weights["random"], by_weights["trained"]
    label = (random.layer, shape_text(random.dataset))
    if random.status != "ok":
        return (*label, failed_cell(random, notes), *[EMPTY] * (len(HEADER) - 3))
    return (
        *label,
        "yes" if random.conforms and trained.conforms else "no",
        *(_number(line.log_det_error) for line in both),
        *(_number(line.inverse_error) for line in both),
        _number(lines["reverse_log_det_error"].max()),
        EMPTY if pd.isna(random.failed_rules) else random.failed_rules,
    )


def _number(value: float, form: str = ".1e") -> str:
    return EMPTY if pd.isna(value) else "0" if value == 0 else format(value, form)
