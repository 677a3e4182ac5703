"""Check the rows, data sets, options and shapes of a suite against the available layers and data sets."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import product
from typing import Any

import torch

from flows import UnsupportedEvent
from flows.baselines import baseline_options
from harness.core.errors import UserError, nearest
from harness.core.explain import Problem
from harness.core.layer_classes import option_errors
from harness.core.settings import FlowSettings
from harness.core.third_party import same_folder
from harness.pipeline.models import layer_shapes
from harness.planning.cells import Cell, Scope
from harness.planning.suite_model import EVERY_LAYER, MOST_CELLS, MOST_TRIALS
from layers import UnsupportedShape


def suite_problems(
    scopes: Sequence[Scope], shapes: bool, only: Container[tuple[str, str]] | None = None
) -> list[Problem]:
    """Return the problems that the first check finds which finds any; of shapes, one for each place.

    Args:
        scopes: profiles of a suite.
        shapes: build layers on shapes, too.
        only: (column, row) pairs in which shapes are checked; None: all.
    """
    for check in (_size_problems, _name_problems, _option_problems, lambda scope: scope.suite.problems(scope)):
        if problems := [problem for scope in scopes for problem in check(scope)]:
            return problems
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are small, and threads wait for each other where cores are busy
    try:
        found = [problem for scope in scopes if shapes for problem in _shape_problems(scope, only)]
    finally:
        torch.set_num_threads(threads)
    return list({problem.place: problem for problem in reversed(found)}.values())  # the first of each place


def _size_problems(scope: Scope) -> Iterator[Problem]:
    """Yield a problem if a profile is too large to be examined cell by cell."""
    cells = len(scope.rows) * (len(scope.columns) + len(getattr(scope.profile, "averages", ())))
    seeds = max(map(len, scope.suite.repeats(scope).values()), default=1) if cells <= MOST_CELLS else 1
    if cells > MOST_CELLS or cells * seeds > MOST_TRIALS:
        rule = f"a profile has at most {MOST_CELLS:,} and {MOST_TRIALS:,}; split the suite"
        yield scope.where.says(f"profiles.{scope.name}: {cells:,} cells and {cells * seeds:,} trials; {rule}", True)


def _name_problems(scope: Scope) -> Iterator[Problem]:
    """Yield layers, data sets and rows that do not exist, and wrong options of data sets."""
    if not scope.columns:
        message = f"profiles.{scope.name} has no {scope.suite.columns_key}, and so nothing to do; add this key"
        yield scope.where.says(message, at_key=True)
    for label, (row, where) in scope.every_row.items():
        named = getattr(row, row.key) is not None
        try:
            row.resolve(label, scope.suite.origin.folder)
        except UserError as error:
            yield (where.at((row.key,)) if named else where).says(str(error), at_key=not named)
    for part, place in scope.parts:
        there, whose = (scope.rows, "profile") if "datasets" in place else (scope.every_row, "suite")
        for label in getattr(part, "rows", None) or () if place else ():
            if label not in there:
                message = f"rows: no row {label!r} in the {whose}; {nearest(label, there)}"
                yield scope.locate((*place, "rows")).says(message)
        for section in scope.suite.sections:
            rows = [label for label, (row, _) in scope.every_row.items() if row.section == section]
            labels = dict.fromkeys([*getattr(scope.suite, section), *rows])
            under = "" if section == "layers" else f" under `{section}`"
            for label in getattr(part, section):
                if label not in labels:
                    message = f"the suite has no row {label!r}{under}; {nearest(label, labels)}"
                    yield scope.locate((*place, section, label)).says(message, at_key=True)
    for column in scope.data.values():
        if getattr(column.entry, "shape", None) is not None:
            continue
        try:
            faults = column.dataset.option_errors(column.entry.options)
            for option, message in faults:
                where = column.place("options", option) if option in column.entry.options else column.where
                yield where.says(message)
            if not faults:
                _ = column.event_shape
        except UserError as error:
            where = column.place("data") if column.entry.data else column.where
            yield where.says(str(error), at_key=column.entry.data is None)


def _option_problems(scope: Scope) -> Iterator[Problem]:
    """Yield wrong options of layers and baselines; equal ones are checked once."""
    verdicts = scope.suite.verdicts
    for cell in scope.every_cell:
        for options in scope.suite.option_sets(cell):
            checked = (cell.subject, type(cell.spec), repr(options))
            if checked not in verdicts:
                parameters = None if cell.spec.levels else baseline_options(cell.subject)
                verdicts[checked] = option_errors(cell.subject, options, parameters)
            for option, message in verdicts[checked]:
                where = cell.place("tune", option) or cell.place("options", option) or cell.where
                yield where.says(f"{cell.row}: option {message}")


def _shape_problems(scope: Scope, only: Container[tuple[str, str]] | None) -> Iterator[Problem]:
    """Yield the layers and baselines that cannot be built on the events that they meet; equal ones are built once."""
    suite = scope.suite
    for cell in scope.every_cell:
        if only is not None and (cell.column, cell.row) not in only:
            continue
        here = f"({scope.name} {cell.column})"
        permute = scope.data[cell.column].entry.permute if cell.layer.oracle else None
        if not suite.unsupported and (refusal := cell.layer.oracle_fault(permute)) is not None:
            hint = "or say `unsupported: true` in the suite for a row that says so"
            yield cell.where.says(f"{cell.row} {here}: {refusal}, {hint}")
            continue
        flow = getattr(cell.settings, "flow", FlowSettings())
        shapes = [] if suite.shapes == "unchecked" else cell.event_shapes
        try:
            if suite.shapes == "flow" and cell.spec.levels:
                shapes = [inner for shape in shapes for inner in layer_shapes(shape, flow)]
        except UnsupportedEvent as error:
            place = scope.at(suite.columns_key, cell.column)
            way = f" (--set {suite.columns_key}.{cell.column}.flow.levels=...)" * (place.origin is not None)
            yield place.says(f"{cell.column} ({scope.name}): {error}{way}", at_key=True)
            continue
        for shape, options in product(shapes, suite.option_sets(cell)):
            built = (cell.subject, None if cell.spec.levels else flow.levels, repr(options), shape)
            if built not in suite.verdicts:
                suite.verdicts[built] = _build_fault(cell, shape, options, flow)
            if suite.verdicts[built] is not None:
                yield cell.where.says(f"{cell.row} on events {shape} {here}: {suite.verdicts[built]}")


def _build_fault(cell: Cell, shape: tuple[int, ...], options: dict[str, Any], flow: FlowSettings) -> str | None:
    unsupported = cell.scope.suite.unsupported or cell.where.place[-1:] == (EVERY_LAYER,)
    try:
        with same_folder():
            cell.spec.build(cell.subject, cell.row, shape, options, flow)
    except (UnsupportedShape, UnsupportedEvent) as error:
        hint = "with `unsupported: true` in the suite such a cell is a row that says so"
        return None if unsupported else f"{error}; {hint}"
    except Exception as error:  # third-party code may raise anything
        return f"cannot be built: {type(error).__name__}: {error}"
    return None
