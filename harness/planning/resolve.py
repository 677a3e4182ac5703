"""One profile of a suite under the changes of the command line, and the settings of each row in each column of it.

Every setting keeps the place that set it last, so that a problem with its value points there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from harness.core.errors import UserError
from harness.core.explain import Place
from harness.core.settings import FlowSettings, LayerRef, Settings
from harness.planning.assignments import option_behind
from harness.planning.problems import Problem, Where
from harness.planning.suite_model import EVERY_LAYER, AnyRow, Overlay

if TYPE_CHECKING:
    from harness.datasets import Dataset
    from harness.planning.suite_base import Suite

AnySettings = TypeVar("AnySettings", bound=Settings)


class Leaf(NamedTuple):
    """One setting of a part of a suite, such as the width in `flow`."""

    name: str | None  # None: the value is all that the part gives below the key
    value: Any
    where: Where


@dataclass(frozen=True, eq=False)
class Scope:
    """One profile of a suite under the changes of the command line."""

    suite: Suite
    name: str
    profile: Any  # of the class of the suite's kind, with the changes
    changes: Mapping[Place, str]  # place of a changed setting -> the option that changed it, the last one first
    extra: tuple[str, ...]  # third-party layers that the command line adds as rows

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
        for label, entry in self.profile.datasets.items():
            yield entry, (*self.where.place, "datasets", label)

    def limit(self, name: str) -> Any:
        """Return `timeout` or `memory` of the profile, or else of the suite."""
        limit = getattr(self.profile, name)
        return getattr(self.suite, name) if limit is None else limit

    def of_column(self, column: str, name: str) -> Any:
        """Return a setting of a column, or else of the profile; None: neither gives it."""
        key = self.suite.columns_key
        entry = getattr(self.profile, key)[column]
        leaves = [
            Leaf(name, getattr(self.profile, name), self.at(name)),
            Leaf(name, getattr(entry, name), self.at(key, column, name)),
        ]
        leaves_set = by_precedence(leaf for leaf in leaves if leaf.value is not None)
        return leaves_set[-1].value if leaves_set else None

    @cached_property
    def rows(self) -> dict[str, tuple[AnyRow, Where]]:
        """The rows: all, or those that the profile's `rows` names, in the suite's order, and those of `--layer`."""
        rows, named = self.suite.rows(self.extra), self.profile.rows
        if named is None:
            return rows
        added = {class_name(spec) for spec in self.extra}
        return {label: row for label, row in rows.items() if label in named or label in added}

    @cached_property
    def cells(self) -> dict[str, list[Cell]]:
        """Column -> every row in it: all of the profile, or those that the column's `rows` names, and of `--layer`."""
        entries = getattr(self.profile, self.suite.columns_key)
        added = {class_name(spec) for spec in self.extra}
        cells = {}
        for column in self.columns:
            named = getattr(entries[column], "rows", None)
            labels = [label for label in self.rows if named is None or label in named or label in added]
            cells[column] = [Cell(self, column, label, *self.rows[label]) for label in labels]
        return cells

    @property
    def every_cell(self) -> list[Cell]:
        """Every row in every column, columns outermost."""
        return [cell for cells in self.cells.values() for cell in cells]

    @cached_property
    def columns(self) -> dict[str, str]:
        """Label of each column -> the name of its data set, or the label."""
        entries = getattr(self.profile, self.suite.columns_key)
        return {label: getattr(entry, "data", None) or label for label, entry in entries.items()}

    @cached_property
    def data(self) -> dict[str, Column]:
        """Label -> the column of a data set."""
        return {label: Column(self, label, entry) for label, entry in self.profile.datasets.items()}

    def unused(self, key: str, name: str | None, hint: str) -> Iterator[Problem]:
        """Yield a problem for each part of the suite that gives a setting without effect; None: any below the key."""
        for cell in self.every_cell:
            for leaf in cell.leaves(key):
                if leaf.name == name:
                    setting = key if name is None else f"{key}.{name}"
                    message = f"{setting}: has no effect in a suite of kind {self.suite.kind}; {hint}"
                    yield leaf.where.says(message, at_key=True)


@dataclass(frozen=True, eq=False)
class Column:
    """A data set with the settings of one column."""

    scope: Scope
    label: str
    entry: Any  # a DataEntry of the suite's kind

    @property
    def name(self) -> str:
        """The name of the data set."""
        return self.entry.data or self.label

    @property
    def where(self) -> Where:
        """The column's place in the file."""
        return self.scope.where.at(("datasets", self.label))

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The event shape, if the entry has one in place of a data set."""
        return getattr(self.entry, "shape", None)

    def place(self, *keys: str) -> Where:
        """Return the place of a setting."""
        return self.scope.at("datasets", self.label, *keys)

    @cached_property
    def dataset(self) -> Dataset | None:
        """The data set; None if there is none of this name or its options are wrong, which is reported elsewhere."""
        from harness.datasets import find_dataset

        with contextlib.suppress(UserError):
            dataset = find_dataset(self.name, self.scope.suite.folder)
            dataset.parse(self.entry.options)
            dataset.event_shape(self.entry.options)
            return dataset
        return None


@dataclass(frozen=True, eq=False)
class Cell:
    """A row in a column."""

    scope: Scope
    column: str
    row: str
    spec: AnyRow
    spec_where: Where
    cached: dict[str, list[Leaf]] = field(default_factory=dict, init=False)  # of `leaves`, by key

    @cached_property
    def parts(self) -> list[tuple[Any, Place]]:
        """The parts of the suite that set something for the row in the column, with their places, weakest first."""
        scope, section = self.scope, self.spec.section
        here, entry = scope.where.place, scope.profile.datasets.get(self.column)
        parts: list[tuple[Any, Place]] = [(scope.suite, ()), (scope.profile, here)]
        if entry is not None:
            parts.append((entry, (*here, "datasets", self.column)))
        parts.append((self.spec, self.spec_where.place))
        by_star = self.row not in getattr(scope.suite, section)
        overlays: Mapping[str, Overlay] = getattr(scope.profile, section)
        for key in (EVERY_LAYER,) * by_star + (self.row,):
            if key in overlays:
                parts.append((overlays[key], (*here, section, key)))
        if entry is not None and self.row in getattr(entry, section):
            place = (*here, "datasets", self.column, section, self.row)
            parts.append((getattr(entry, section)[self.row], place))
        return parts

    def leaves(self, key: str) -> list[Leaf]:
        """Return all that the parts give below a key, the strongest last; those of the command line are strongest."""
        if key in self.cached:
            return self.cached[key]
        leaves = []
        for part, place in self.parts:
            if key not in part.model_fields_set or (key == "options" and not isinstance(part, Overlay)):
                continue  # `options` of a data set are not those of the layer
            value = getattr(part, key)
            inner = value or {}
            if isinstance(value, Settings):
                inner = {name: getattr(value, name) for name in value.model_fields_set}
            leaves.append(Leaf(None, value, self.scope.locate((*place, key))))
            leaves += [Leaf(name, inner[name], self.scope.locate((*place, key, name))) for name in inner]
        self.cached[key] = by_precedence(leaves)
        return self.cached[key]

    def merged(self, key: str, cls: type[AnySettings]) -> AnySettings:
        """Return the settings below this key."""
        return cls(**{leaf.name: leaf.value for leaf in self.leaves(key) if leaf.name is not None})

    def place(self, key: str, name: str) -> Where | None:
        """Return the place that set a value below this key; None if no part of the suite has set it."""
        return next((leaf.where for leaf in reversed(self.leaves(key)) if leaf.name == name), None)

    @cached_property
    def layer(self) -> LayerRef:
        """The layer with its options."""
        options = {leaf.name: leaf.value for leaf in self.leaves("options") if leaf.name is not None}
        return self.spec.reference(self.row, options, self.scope.suite.folder)

    @cached_property
    def where(self) -> Where:
        """The place where the options were set last, or else the row's."""
        parts = [leaf.where for leaf in self.leaves("options") if leaf.name is None and leaf.value]
        return parts[-1] if parts else self.spec_where

    @cached_property
    def flow(self) -> FlowSettings:
        """The settings of the backbone."""
        return self.merged("flow", FlowSettings)


def by_precedence(leaves: Iterable[Leaf]) -> list[Leaf]:
    """Return leaves, given weakest first, with those that the command line has set last."""
    return sorted(leaves, key=lambda leaf: leaf.where.origin is not None)


def class_name(spec: str) -> str:
    """Return the label of a row that `--layer` adds."""
    return spec.rpartition(":")[2]
