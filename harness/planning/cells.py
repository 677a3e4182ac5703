"""One profile of a suite under the changes of the command line, and its cells: the settings of each row in each column.

A cell is merged from plain mappings, those of all parts of the file and of the options that change them, and then
validated once. Every setting keeps the place that states it, so that a problem with its value points there.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from harness.core.errors import SuiteError, UserError
from harness.core.explain import Place, Problem
from harness.core.settings import LayerRef
from harness.planning.strict_yaml import Document
from harness.planning.suite_model import EVERY_LAYER, AnyRow

if TYPE_CHECKING:
    from harness.datasets import Dataset
    from harness.planning.suite_base import Suite


MAX_SHOWN = 50

Changes = Mapping[Place, str]
"""Place of a setting -> the option that changed it, the last option first."""


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


def raise_faults(document: Document, problems: Iterable[Problem]) -> None:
    """Raise one SuiteError with every problem on a line of its own, in the order of the file; without any, return.

    Those of options of the command line come first, each after its option.
    """
    options, located = set(), set()
    for place, message, at_key, origin in problems:
        if origin is None:
            located.add((document.position(place, at_key), message))
        else:
            options.add(f"{origin}: {message}")
    lines = sorted(options) + [document.located(position, message) for position, message in sorted(located)]
    if not lines:
        return
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"{document.name}: and {len(lines) - MAX_SHOWN} more"]
    raise SuiteError("\n".join(lines))


def option_behind(changes: Changes, place: Place) -> str | None:
    """Return the first option that changed the setting at this place, something in it or all around it."""
    options = (option for leaf, option in changes.items() if leaf[: len(place)] == place[: len(leaf)])
    return next(options, None)


@dataclass(frozen=True, eq=False)
class Scope:
    """One profile of a suite under the changes of the command line."""

    suite: Suite
    name: str
    profile: Any  # of the profiles' model of the suite's kind, with the changes
    content: Mapping[str, Any]  # the same as a plain mapping
    changes: Changes
    every_row: Mapping[str, tuple[AnyRow, Where]]  # of the suite, and third-party layers of the command line

    @property
    def where(self) -> Where:
        """The profile's place in the file."""
        return Where(("profiles", self.name))

    def at(self, *keys: str) -> Where:
        """Return the place of a part of the profile (see `locate`)."""
        return self.locate(("profiles", self.name, *keys))

    def locate(self, place: Place) -> Where:
        """Return a place of the file, with the option that changed something there, if there is one."""
        return Where(place, option_behind(self.changes, place))

    @property
    def parts(self) -> Iterator[tuple[Any, Place]]:
        """The parts that can change rows, each with its place: the suite, the profile and its data sets."""
        yield self.suite, ()
        yield self.profile, self.where.place
        for column in self.data.values():
            yield column.entry, column.place().place

    def stated(self, place: Place) -> Mapping[str, Any]:
        """Return what the part at this place states, as a plain mapping; it may be empty."""
        inside = place[:1] == ("profiles",)
        part: Any = self.content if inside else self.suite.origin.document.value
        for key in place[2 * inside :]:
            part = part.get(key) if isinstance(part, dict) else None
        return part if isinstance(part, dict) else {}

    def limit(self, name: str) -> Any:
        """Return `timeout` or `memory` of the profile, or else of the suite."""
        limit = getattr(self.profile, name)
        return getattr(self.suite, name) if limit is None else limit

    def of_column(self, column: str, *names: str) -> Any:
        """Return the setting of highest precedence among some of a column and the profile; None: neither has it."""
        here = (self.suite.columns_key, column)
        parts = ((self.profile, ()), (self.entries[column], here))
        stated = [
            (self.at(*place, name).origin is not None, value)
            for part, place in parts
            for name in names
            if (value := getattr(part, name)) is not None
        ]
        return max(reversed(stated), key=lambda value: value[0])[1] if stated else None

    @property
    def entries(self) -> Mapping[str, Any]:
        """Label -> the keys of a column."""
        entries: Mapping[str, Any] = getattr(self.profile, self.suite.columns_key)
        return entries

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
            column: [Cell(self, column, label, *row) for label, row in self.rows.items() if self._has(entry, label)]
            for column, entry in self.entries.items()
        }

    @property
    def every_cell(self) -> list[Cell]:
        """Every row in every column, columns outermost."""
        return [cell for cells in self.cells.values() for cell in cells]

    @cached_property
    def columns(self) -> dict[str, str]:
        """Label of each column -> the name of its data set, or the label."""
        return {label: getattr(entry, "data", None) or label for label, entry in self.entries.items()}

    @cached_property
    def data(self) -> dict[str, Column]:
        """Label -> the column of a data set."""
        return {label: Column(self, label, entry) for label, entry in getattr(self.profile, "datasets", {}).items()}


@dataclass(frozen=True, eq=False)
class Column:
    """A data set with the settings of one column."""

    scope: Scope
    label: str
    entry: Any  # of the columns' model of the suite's kind

    @property
    def name(self) -> str:
        """The name of the data set."""
        return self.entry.data or self.label

    @property
    def where(self) -> Where:
        """The column's place in the file."""
        return self.scope.where.at(("datasets", self.label))

    def place(self, *keys: str) -> Where:
        """Return the place of a setting."""
        return self.scope.at("datasets", self.label, *keys)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The event shape, if need be of the data set; a UserError if that is unknown or misconfigured."""
        from harness.datasets import find_dataset

        if (shape := getattr(self.entry, "shape", None)) is not None:
            return tuple(shape)
        origin = self.scope.suite.origin
        dataset = find_dataset(self.name, origin.folder)
        dataset.parse(self.entry.options)
        return dataset.event_shape(dataset.located(self.entry.options, origin.folder, origin.data))

    @cached_property
    def dataset(self) -> Dataset | None:
        """The data set; None if its name is unknown or its options are wrong, which is reported elsewhere."""
        from harness.datasets import find_dataset

        with contextlib.suppress(UserError):
            return find_dataset(self.name, self.scope.suite.origin.folder) if self.event_shape else None
        return None


@dataclass(frozen=True, eq=False)
class Cell:
    """A row in a column."""

    scope: Scope
    column: str
    row: str
    spec: AnyRow
    spec_where: Where

    def _statements(self) -> Iterator[tuple[Place, Any, Where]]:
        """Yield every key that a part of the suite states for the cell and every name below it, weakest first."""
        scope, section = self.scope, self.spec.section
        profile = scope.where.place
        column, overlay = (*profile, scope.suite.columns_key, self.column), (section, self.row)
        parts: list[tuple[str, Place]] = [("", ()), ("", profile), ("", column)]
        if self.spec_where.place:  # no row of --layer
            parts.append((section, self.spec_where.place))
        if self.row not in getattr(scope.suite, section):
            parts.append((section, (*profile, section, EVERY_LAYER)))
        parts += [(section, (*profile, *overlay)), (section, (*column, *overlay))]
        for kind, place in parts:
            stated = scope.stated(place)
            for key in scope.suite.cell_model.keys(kind):
                if key in stated:
                    inner = stated[key]
                    yield (key,), inner, scope.locate((*place, key))
                    for name in inner if isinstance(inner, dict) else ():
                        yield (key, name), inner[name], scope.locate((*place, key, name))

    @cached_property
    def origins(self) -> dict[Place, list[Where]]:
        """Key, or key and name, of a setting -> the places that state it; those of the command line are strongest."""
        return self._merged[1]

    @cached_property
    def _merged(self) -> tuple[dict[str, Any], dict[Place, list[Where]]]:
        settings: dict[str, Any] = {}
        origins: dict[Place, list[Where]] = {}
        for setting, value, where in sorted(self._statements(), key=lambda stated: stated[2].origin is not None):
            key, *name = map(str, setting)
            before = settings.get(key) or {}  # what is merged: `tune: false` ends what it had, and {} begins again
            settings[key] = before | {name[0]: value} if name else before if isinstance(value, dict | None) else value
            if value or name:
                origins.setdefault(setting, []).append(where)
        return settings, origins

    @cached_property
    def settings(self) -> Any:
        """The settings of the row in the column, of the suite's `cell_model`; equal ones are validated once."""
        merged, suite = self._merged[0], self.scope.suite
        key = (json.dumps(merged, sort_keys=True),)
        if key not in suite.verdicts:
            suite.verdicts[key] = suite.cell_model.model_validate(merged)
        return suite.verdicts[key]

    @cached_property
    def subject(self) -> type[Any] | None:
        """The class under test; None if its name is unknown, which is reported elsewhere."""
        with contextlib.suppress(UserError):
            return self.spec.resolve(self.row, self.scope.suite.origin.folder)
        return None

    @property
    def event_shapes(self) -> list[tuple[int, ...]]:
        """The event shapes of the column; a UserError if its data set is unknown or misconfigured."""
        shapes = getattr(self.scope.entries[self.column], "shapes", None)
        return [self.scope.data[self.column].event_shape] if shapes is None else list(shapes)

    @cached_property
    def option_sets(self) -> list[dict[str, Any]]:
        """The options of the layer, and those that its trials may settle on instead."""
        return self.scope.suite.option_sets(self)

    def place(self, *setting: str) -> Where | None:
        """Return the place that sets a key, or a name below it; None if no part of the suite states it."""
        return self.origins.get(setting, [None])[-1]

    @cached_property
    def layer(self) -> LayerRef:
        """The layer with its options."""
        return self.spec.reference(self.row, self.settings.options, self.scope.suite.origin.folder)

    @property
    def where(self) -> Where:
        """The place where the options were set last, or else the row's."""
        return self.place("options") or self.spec_where
