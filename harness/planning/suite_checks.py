"""Check the rows, data sets, options and shapes of a suite against the available layers and data sets."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import product

import torch

from flows import UnsupportedEvent
from flows.baselines import baseline_options
from harness.core.errors import UserError, nearest
from harness.core.explain import Problem
from harness.core.layer_classes import option_errors
from harness.core.settings import FlowSettings
from harness.core.third_party import same_folder
from harness.datasets import find_dataset
from harness.pipeline.models import layer_shapes
from harness.planning.cells import Cell, Column, Scope, Where
from harness.planning.suite_model import EVERY_LAYER, MOST_CELLS, MOST_TRIALS
from layers import UnsupportedShape


def suite_problems(
    scopes: Sequence[Scope], shapes: bool, only: Container[tuple[str, str]] | None = None
) -> list[Problem]:
    """Return the problems of a suite in some profiles.

    Args:
        scopes: the profiles.
        shapes: build layers on shapes, and not just where there are other problems.
        only: (column, row) pairs in which shapes are checked; None: all.
    """
    if large := [problem for scope in scopes for problem in _size_problems(scope)]:
        return large
    problems = [problem for scope in scopes for problem in _settings_problems(scope)]
    return problems + _shape_problems(scopes, only) if shapes or problems else problems


def _size_problems(scope: Scope) -> Iterator[Problem]:
    """Yield a problem if a profile is too large to be examined cell by cell."""
    cells = len(scope.rows) * (len(scope.columns) + len(getattr(scope.profile, "averages", ())))
    seeds = max(map(len, scope.suite.repeats(scope).values()), default=1) if cells <= MOST_CELLS else 1
    if cells > MOST_CELLS or cells * seeds > MOST_TRIALS:
        rule = f"a profile has at most {MOST_CELLS:,} and {MOST_TRIALS:,}; split the suite"
        yield scope.where.says(f"profiles.{scope.name}: {cells:,} cells and {cells * seeds:,} trials; {rule}", True)


def _settings_problems(scope: Scope) -> Iterator[Problem]:
    """Yield the problems with names and options of one profile, and those that its kind finds."""
    if not scope.columns:
        key = scope.suite.columns_key
        message = f"profiles.{scope.name} has no {key}, and so nothing to do; add the key {key!r}"
        yield scope.where.says(message, at_key=True)
    for label, (row, where) in scope.every_row.items():
        named = getattr(row, row.key) is not None
        try:
            row.resolve(label, scope.suite.origin.folder)
        except UserError as error:
            yield (where.at((row.key,)) if named else where).says(str(error), at_key=not named)
    yield from _unknown_labels(scope)
    for column in scope.data.values():
        if getattr(column.entry, "shape", None) is None:
            yield from _data_problems(column)
    for cell in scope.every_cell:
        for option, message in _option_faults(cell).items():
            where = cell.place("tune", option) or cell.place("options", option) or cell.where
            yield where.says(f"{cell.row}: option {message}")
    yield from scope.suite.problems(scope)


def _unknown_labels(scope: Scope) -> Iterator[Problem]:
    """Yield the rows that a profile or a data set names although the suite, or the profile, does not have them."""
    sections = {section: dict.fromkeys(getattr(scope.suite, section)) for section in scope.suite.sections}
    for label, (row, _) in scope.every_row.items():
        sections[row.section].setdefault(label)
    every = [label for labels in sections.values() for label in labels]
    for part, place in scope.parts:
        there, whose = (scope.rows, "profile") if "datasets" in place else (every, "suite")
        for label in getattr(part, "rows", None) or () if place else ():
            if label not in there:
                message = f"rows: no row {label!r} in the {whose}; {nearest(label, there)}"
                yield scope.locate((*place, "rows")).says(message)
        for section, labels in sections.items():
            under = "" if section == "layers" else f" under `{section}`"
            for label in getattr(part, section):
                if label not in labels:
                    message = f"the suite has no row {label!r}{under}; {nearest(label, labels)}"
                    yield scope.locate((*place, section, label)).says(message, at_key=True)


def _data_problems(column: Column) -> Iterator[Problem]:
    try:
        dataset = find_dataset(column.name, column.scope.suite.origin.folder)
        faults = dataset.option_errors(column.entry.options)
        if not faults:
            _ = column.event_shape
    except UserError as error:
        where = column.place("data") if column.entry.data else column.where
        yield where.says(str(error), at_key=column.entry.data is None)
        return
    for option, message in faults:
        where = column.place("options", option) if option in column.entry.options else column.where
        yield where.says(message)


def _option_faults(cell: Cell) -> dict[str, str]:
    """Return option -> message of each faulty option of a cell; none if there is no such layer or baseline."""
    cls, verdicts = cell.subject, cell.scope.suite.verdicts
    if cls is None:
        return {}
    faults: dict[str, str] = {}
    for options in cell.option_sets:
        checked = (cls, type(cell.spec), repr(options))
        if checked not in verdicts:
            parameters = None if cell.spec.levels else baseline_options(cls)
            verdicts[checked] = dict(reversed(option_errors(cls, options, parameters)))
        faults = verdicts[checked] | faults
    return faults


def _shape_problems(scopes: Sequence[Scope], only: Container[tuple[str, str]] | None) -> list[Problem]:
    """Build every layer on every shape that it meets, each once; skip cells with faults that others report.

    Return one problem per cause, with all the cells that it concerns.
    """
    concerned: dict[tuple[Where, bool, str, str], list[str]] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are small, and threads wait for each other where cores are busy
    try:
        for scope in scopes:
            for cell in scope.every_cell:
                concerns = only is None or (cell.column, cell.row) in only
                if concerns and (cause := _cause(scope, cell)) is not None:
                    place = scope.name if cause[1] else f"{scope.name} {cell.column}"
                    concerned.setdefault(cause, []).append(place)
    finally:
        torch.set_num_threads(threads)
    return [
        where.says(f"{what} ({', '.join(dict.fromkeys(places))}): {why}", at_key)
        for (where, at_key, what, why), places in concerned.items()
    ]


def _cause(scope: Scope, cell: Cell) -> tuple[Where, bool, str, str] | None:
    """Return the reason why a cell cannot be built: where, whether at the key, of what, why; None if it can."""
    cls = cell.subject
    if cls is None or _option_faults(cell):
        return None
    permute = scope.data[cell.column].entry.permute if cell.layer.oracle else None
    refusal = None if scope.suite.unsupported else cell.layer.oracle_fault(permute)
    if refusal is not None:
        return cell.where, False, cell.row, f"{refusal}, or say `unsupported: true` in the suite for a row that says so"
    try:
        shapes = _built_shapes(scope, cell)
    except UnsupportedEvent as error:
        return scope.where.at((scope.suite.columns_key, cell.column)), True, cell.column, str(error)
    except UserError:
        return None
    verdicts = scope.suite.verdicts
    for shape, options in product(shapes, cell.option_sets):
        flow = getattr(cell.settings, "flow", FlowSettings())
        built = (cls, None if cell.spec.levels else flow.levels, repr(options), shape)
        if built not in verdicts:
            verdicts[built] = None
            try:
                with same_folder():
                    cell.spec.build(cls, cell.row, shape, options, flow)
            except (UnsupportedShape, UnsupportedEvent) as error:
                hint = "with `unsupported: true` in the suite such a cell is a row that says so"
                accepted = scope.suite.unsupported or cell.where.place[-1:] == (EVERY_LAYER,)
                verdicts[built] = None if accepted else f"{error}; {hint}"
            except Exception as error:  # third-party code may raise anything
                verdicts[built] = f"cannot be built: {type(error).__name__}: {error}"
        if verdicts[built] is not None:
            return cell.where, False, f"{cell.row} on events {shape}", verdicts[built]
    return None


def _built_shapes(scope: Scope, cell: Cell) -> list[tuple[int, ...]]:
    """Return the shapes of events on which the object of a cell is built; raise as `Cell.event_shapes`."""
    if scope.suite.shapes == "unchecked":
        return []
    shapes = cell.event_shapes
    if scope.suite.shapes == "events" or not cell.spec.levels:
        return shapes
    return [inner for shape in shapes for inner in layer_shapes(shape, cell.settings.flow)]
