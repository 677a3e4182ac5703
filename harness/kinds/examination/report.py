"""The reports of suites of examinations, a table per property, and of suites that check layers by every rule."""

from __future__ import annotations

import json
import shlex
from functools import cached_property

import pandas as pd

from harness.core.settings import LayerRef
from harness.core.texts import one_line
from harness.kinds.examination.examinations import EXAMINATIONS
from harness.reporting.frame import groups_of, rows_of
from harness.reporting.report import Report
from harness.reporting.tables.cells import EMPTY, Notes, failed_cell, shape_text
from harness.reporting.tables.rendering import Table

ERRORS = {"log_det_error": "log-det off by", "inverse_error": "round trips off by"}
WEIGHTS = ("random", "trained")
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


class ExaminationReport(Report, kind="examination"):
    """One table per property."""

    @cached_property
    def tables(self) -> list[Table]:
        """A table per property, a row per data set and layer; layers that do not support it are left out."""
        made = []
        for name, lines in groups_of(self.results.frame, "examine"):
            measures, notes, rows = EXAMINATIONS[name].measures, Notes(), []
            for line in rows_of(lines[lines["status"] != "unsupported"]):
                if line.status != "ok":
                    cells = [failed_cell(line, notes), *[EMPTY] * (len(measures) - 1)]
                else:
                    cells = [show(getattr(line, measure)) for measure, (_, _, show) in measures.items()]
                rows.append((line.layer, line.dataset, *cells))
            if rows:
                header = ("layer", "on", *(heading for _, heading, _ in measures.values()))
                about = (f"{self.results.plan.suite}-{name}", EXAMINATIONS[name].caption, header)
                made.append(Table(*about, tuple(rows), notes.numbered(), words=frozenset({1})))
        return made


class ConformanceReport(Report, kind="conformance"):
    """The layers that conform, and the faults of the others."""

    @cached_property
    def tables(self) -> list[Table]:
        """The table of all layers, and that of the faults if there are any."""
        frame, name, notes = self.results.frame, self.results.plan.suite, Notes()
        rows = tuple(_row(lines, notes) for _, lines in groups_of(frame, ["layer", "dataset"]))
        errors = [f"{heading}, {weights}" for heading in ERRORS.values() for weights in WEIGHTS]
        header = ("layer", "on", "conforms", *errors, "reverse log-det off by", "rules not kept")
        groups = (("", 3), *((heading, len(WEIGHTS)) for heading in ERRORS.values()), ("", 2))
        made = [Table(f"{name}-conformance", CAPTION, header, rows, notes.numbered(), groups, words=frozenset({8}))]
        layers = {layer.row: layer for trial in self.results.plan.trials for layer in trial.layers_under_test}
        faults = []
        for line in rows_of(frame[frame["conforms"].eq(False)].drop_duplicates("layer")):
            finding = line.finding
            if pd.isna(finding):
                finding = (
                    f"with {line.weights} weights the log-det is {_number(line.log_det, '.4g')} and should be "
                    f"{_number(line.log_det_true, '.4g')}; round trips are off by {_number(line.inverse_error)}"
                )
            library = "" if pd.isna(line.remark) else one_line(line.remark)
            faults.append((line.layer, library, one_line(finding), command(layers[line.layer])))
        if faults:
            header = ("layer", "library", "fault", "command")
            made.append(Table(f"{name}-faults", FAULTS_CAPTION, header, tuple(faults), words=frozenset({1, 2, 3})))
        return made


def command(layer: LayerRef) -> str:
    """Return the command line that checks the layer alone."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in layer.options}
    options = [f"--set {shlex.quote(f'{name}={text}')}" for name, text in texts.items()]
    return " ".join(["python -m harness check-layer", shlex.quote(layer.layer), *options])


def _row(lines: pd.DataFrame, notes: Notes) -> tuple[str, ...]:
    lines_of = {line.weights: line for line in rows_of(lines)}
    first, *_ = both = [lines_of[weights] for weights in WEIGHTS]
    label = (first.layer, shape_text(first.dataset))
    if first.status != "ok":
        return (*label, failed_cell(first, notes), *[EMPTY] * 6)
    return (
        *label,
        "yes" if all(line.conforms for line in both) else "no",
        *(_number(getattr(line, measure)) for measure in ERRORS for line in both),
        _number(lines["reverse_log_det_error"].max()),
        EMPTY if pd.isna(first.failed_rules) else first.failed_rules,
    )


def _number(value: float, form: str = ".1e") -> str:
    return EMPTY if pd.isna(value) else "0" if value == 0 else format(value, form)
