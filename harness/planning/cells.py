"""One profile of a suite under the changes of the command line, and its cells: the settings of each row in each column.

A cell is merged from plain mappings, those of all parts of the file and of the options that change them, and then
validated once. Every setting keeps the place that states it, so that a problem with its value points there.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from harness.core.errors import SuiteError
from harness.core.explain import Place, Problem
from harness.core.settings import LayerRef
from harness.planning.strict_yaml import Document
from harness.planning.suite_model import EVERY_LAYER, AnyRow

if TYPE_CHECKING:
    from harness.datasets import Dataset
    from harness.planning.suite import Suite


Changes = Sequence[tuple[str, Any]]
"""The options that change settings, each with the content that it gives; a later one has precedence."""


@dataclass(frozen=True)
class Where:
    """The place of a setting in the file, or the command line option that set it."""

    place: Place
    origin: str | None = None

    def says(self, message: str, at_key: bool = False) -> Problem:
        """Return a problem at this place; `at_key` points at the key rather than at the value."""
        return Problem(self.place, message, at_key, self.origin)

    def at(self, place: Place) -> Where:
        """Return a place inside this one."""
        return Where((*self.place, *place), self.origin)


def raise_faults(document: Document, problems: Sequence[Problem]) -> None:
    """Raise one SuiteError with every problem on a line of its own, in the order of the file; without any, return.

    Those of options of the command line come first, each after its option.
    """
    located = {(document.position(place, at_key), message) for place, message, at_key, origin in problems if not origin}
    options = {f"{origin}: {message}" for _, message, _, origin in problems if origin}
    lines = sorted(options) + [document.located(position, message) for position, message in sorted(located)]
    if lines:
        raise SuiteError("\n".join(lines))


def assigned(place: Sequence[str], value: Any) -> Any:
    """Return the content in which a value stands at this place."""
    for key in reversed(place):
        value = {key: value}
    return value


def option_behind(changes: Changes, place: Place) -> str | None:
    """Return the last option that changed the setting at this place, something in it or all around it."""
    for option, content in reversed(changes):
        for key in place:
            if not (isinstance(content, dict) and content):
                return option
            if key not in content:
                break
            content = content[key]
        else:
            return option
    return None


def merged(base: Any, changes: Any, depth: float = math.inf, sections: Container[str] = ()) -> Any:
    """Return YAML values with changes over them: mappings down to `depth` are merged, and what is deeper is replaced.

    Without a depth, null in place of a mapping removes it. Settings of a row are at most two keys deep, and so is each
    labelled part below the keys `sections`; one that is null changes nothing.
    """
    if depth == 2 and changes is None:
        return base
    if not (depth and isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    whole = base | {
        key: merged(base.get(key), value, depth + 1 if key in sections else depth - 1, sections)
        for key, value in changes.items()
    }
    removed = [key for key in whole if depth == math.inf and whole[key] is None and isinstance(base.get(key), dict)]
    return {key: value for key, value in whole.items() if key not in removed}


@dataclass(frozen=True, eq=False)
class Scope:
    """One profile of a suite, which has the changes of the command line."""

    suite: Suite
    name: str

    @property
    def profile(self) -> Any:
        """The profile, of the profiles' model of the suite's kind."""
        return self.suite.profiles[self.name]

    @property
    def where(self) -> Where:
        """The profile's place in the file."""
        return Where(("profiles", self.name))

    def at(self, *keys: str) -> Where:
        """Return the place of a part of the profile (see `locate`)."""
        return self.locate(("profiles", self.name, *keys))

    def locate(self, place: Place) -> Where:
        """Return a place of the file, with the option that changed something there, if there is one."""
        return Where(place, option_behind(self.suite.origin.changes, place))

    @property
    def parts(self) -> Iterator[tuple[Any, Place]]:
        """The parts that can change rows, each with its place: the suite, the profile and its data sets."""
        yield self.suite, ()
        yield self.profile, self.where.place
        for column in self.data.values():
            yield column.entry, column.place().place

    def of_column(self, column: str, *names: str) -> Any:
        """Return the setting of highest precedence among some of a column and the profile; None: neither has it."""
        parts = ((self.columns[column].entry, (self.suite.columns_key, column)), (self.profile, ()))
        stated = [(getattr(part, name), self.at(*place, name)) for part, place in parts for name in reversed(names)]
        ranked = sorted((each for each in stated if each[0] is not None), key=lambda each: each[1].origin is None)
        return ranked[0][0] if ranked else None

    @cached_property
    def every_row(self) -> dict[str, tuple[AnyRow, Where]]:
        """The rows of the suite and of `--layer`."""
        return {label: (row, self.locate(place)) for label, (row, place) in self.suite.rows().items()}

    @cached_property
    def rows(self) -> dict[str, tuple[AnyRow, Where]]:
        """The rows: all, or those that the profile's `rows` names, in the suite's order, and those of `--layer`."""
        return {label: row for label, row in self.every_row.items() if self._has(self.profile, label)}

    def _has(self, part: Any, label: str) -> bool:
        named = getattr(part, "rows", None)
        return named is None or label in named or self.every_row[label][1].origin is not None

    @cached_property
    def cells(self) -> dict[str, list[Cell]]:
        """Column -> every row in it: all of the profile, or those that the column's `rows` names, and of `--layer`."""
        return {
            label: [Cell(self, label, row, *spec) for row, spec in self.rows.items() if self._has(column.entry, row)]
            for label, column in self.columns.items()
        }

    @property
    def every_cell(self) -> list[Cell]:
        """Every row in every column, columns outermost."""
        return [cell for cells in self.cells.values() for cell in cells]

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Label -> column."""
        entries = getattr(self.profile, self.suite.columns_key)
        return {label: Column(self, label, entry) for label, entry in entries.items()}

    @property
    def data(self) -> dict[str, Column]:
        """Label -> column, if the columns are data sets; else none."""
        return self.columns if self.suite.columns_key == "datasets" else {}


@dataclass(frozen=True, eq=False)
class Column:
    """A data set, or a sweep, with the settings of one column."""

    scope: Scope
    label: str
    entry: Any  # of the columns' model of the suite's kind

    @property
    def name(self) -> str:
        """The name of the data set, or the label."""
        return getattr(self.entry, "data", None) or self.label

    @property
    def where(self) -> Where:
        """The column's place in the file."""
        return self.scope.where.at(("datasets", self.label))

    def place(self, *keys: str) -> Where:
        """Return the place of a setting."""
        return self.scope.at("datasets", self.label, *keys)

    @cached_property
    def dataset(self) -> Dataset:
        """The data set; a UserError if its name is unknown."""
        from harness.datasets import find_dataset

        return find_dataset(self.name, self.scope.suite.origin.folder)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The event shape, if need be of the data set; a UserError if that is unknown or misconfigured."""
        if (shape := getattr(self.entry, "shape", None)) is not None:
            return tuple(shape)
        origin = self.scope.suite.origin
        self.dataset.parse(self.entry.options)
        return self.dataset.event_shape(self.dataset.located(self.entry.options, origin.folder, origin.data))


@dataclass(frozen=True, eq=False)
class Cell:
    """A row in a column."""

    scope: Scope
    column: str
    row: str
    spec: AnyRow
    spec_where: Where

    @cached_property
    def _merged(self) -> tuple[dict[str, Any], dict[Place, Where]]:
        """The settings of all parts, and the strongest place that states each key, and each name below it."""
        scope, section, origin = self.scope, self.spec.section, self.scope.suite.origin
        profile, row = scope.where.place, self.spec_where.place
        column = (*profile, scope.suite.columns_key, self.column)
        parts: list[tuple[str, Place]] = [("", ()), ("", profile), ("", column), (section, row)]
        if row[-1] == EVERY_LAYER or self.spec_where.origin is not None:
            parts.append((section, (*profile, section, EVERY_LAYER)))
        parts += [(section, (*part, section, self.row)) for part in (profile, column)]
        settings: dict[str, Any] = {}
        origins: dict[Place, Where] = {}
        for content, kept in ((origin.document.value, True), (origin.content, False)):
            for kind, place in parts:
                part = reduce(lambda outer, key: outer.get(key) or {}, place, content)
                stated = {key: part[key] for key in scope.suite.cell_model.keys(kind) if part.get(key) is not None}
                settings = merged(settings, stated, 2)
                for key, value in stated.items():
                    names = [(key, name) for name in value] if isinstance(value, dict) else []
                    for setting in [(key,)] * bool(value) + names:
                        where = (*place, *setting)
                        origins[setting] = Where(where) if kept else scope.locate(where)
        return settings, origins

    @cached_property
    def settings(self) -> Any:
        """The settings of the row in the column, of the suite's `cell_model`."""
        return self.scope.suite.cell_model.model_validate(self._merged[0])

    @cached_property
    def subject(self) -> type[Any]:
        """The class under test; a UserError if its name is unknown."""
        return self.spec.resolve(self.row, self.scope.suite.origin.folder)

    @property
    def event_shapes(self) -> list[tuple[int, ...]]:
        """The event shapes of the column; a UserError if its data set is unknown or misconfigured."""
        column = self.scope.columns[self.column]
        shapes = getattr(column.entry, "shapes", None)
        return [column.event_shape] if shapes is None else list(shapes)

    def place(self, *setting: str) -> Where | None:
        """Return the place that sets a key, or a name below it; None if no part of the suite states it."""
        return self._merged[1].get(setting)

    @cached_property
    def layer(self) -> LayerRef:
        """The layer with its options."""
        return self.spec.reference(self.row, self.settings.options, self.scope.suite.origin.folder)

    @property
    def where(self) -> Where:
        """The place where the options were set last, or else the row's."""
        return self.place("options") or self.spec_where
