"""Merge the settings of a suite: each row in each column of one profile.

Every setting keeps the place that set it last, so that a problem with its value points there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.core.errors import UserError
from harness.core.settings import FlowSettings, LayerRef, Settings
from harness.planning.problems import Problem, Where
from harness.planning.strict_yaml import Place
from harness.planning.suite_model import EVERY_LAYER, AnyRow, DataEntry, Overlay, Profile

if TYPE_CHECKING:
    from harness.datasets import Dataset
    from harness.planning.suite_base import Suite

AnySettings = TypeVar("AnySettings", bound=Settings)
Locate = Callable[[Place], Where]
"""From a place inside a part of the suite to where it stands."""


def overlay(cls: type[AnySettings], parts: Sequence[Settings]) -> AnySettings:
    """Merge settings of which each part gives some fields; the last part that gives a field wins."""
    return cls(**{name: getattr(part, name) for part in parts for name in part.model_fields_set})


@dataclass(frozen=True)
class Overrides:
    """The options `--set`: one more profile, laid over everything, and the option behind each part of it."""

    profile: Profile
    origins: Mapping[Place, str]

    def where(self, place: Place) -> Where:
        """Return the command line option behind a part of the profile."""
        for known, text in self.origins.items():
            if known[: len(place)] == place or place[: len(known)] == known:
                return Where(place, text)
        return Where(place, "--set")


@dataclass(frozen=True)
class Column:
    """A data set with the settings of one column."""

    label: str
    where: Where
    entry: Any  # a DataEntry of the suite's kind
    options: dict[str, Any]
    option_places: dict[str, Where]
    set_places: Mapping[str, Where]  # of the keys of the entry that `--set` gives
    folder: Path | None  # of the suite

    @property
    def name(self) -> str:
        """The name of the data set."""
        return self.entry.data or self.label

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The event shape, if the entry has one in place of a data set."""
        return getattr(self.entry, "shape", None)

    def place(self, key: str) -> Where:
        """Return the place that set a key of the entry."""
        return self.set_places.get(key) or self.where.at((key,))

    @cached_property
    def dataset(self) -> Dataset | None:
        """The data set; None if there is none of this name or its options are wrong, which is reported elsewhere."""
        from harness.datasets import find_dataset

        with contextlib.suppress(UserError):
            dataset = find_dataset(self.name, self.folder)
            dataset.parse(self.options)
            dataset.event_shape(self.options)
            return dataset
        return None


@dataclass(frozen=True)
class Cell:
    """A row in a column: the layer with its options, and the parts of the suite that set the rest."""

    row: str
    column: str
    spec: AnyRow
    where: Where  # where the options were set last, or else the row
    layer: LayerRef
    option_places: dict[str, Where]
    sources: tuple[tuple[Locate, Any], ...]  # from weakest to strongest

    def merged(self, key: str, cls: type[AnySettings]) -> AnySettings:
        """Return the settings below this key, merged from all parts of the suite that can have it."""
        return overlay(cls, [getattr(source, key) for _, source in self.sources if key in type(source).model_fields])

    def place(self, key: str, name: str) -> Where | None:
        """Return the place that set a value of merged settings; None if no part of the suite has set it."""
        given = [
            locate((key, name))
            for locate, source in self.sources
            if key in type(source).model_fields and name in getattr(source, key).model_fields_set
        ]
        return given[-1] if given else None

    @cached_property
    def flow(self) -> FlowSettings:
        """The settings of the backbone."""
        return self.merged("flow", FlowSettings)


@dataclass(frozen=True)
class Scope:
    """One profile of a suite under the changes of the command line."""

    suite: Suite
    name: str
    profile: Any  # in the file; of the class of the suite's kind
    overrides: Overrides
    extra: tuple[str, ...]  # third-party layers that the command line adds as rows

    @property
    def where(self) -> Where:
        """The profile's place in the file."""
        return Where(("profiles", self.name))

    @property
    def profiles(self) -> tuple[tuple[Locate, Any], ...]:
        """The profile in the file, and that of `--set`."""
        return (self.where.at, self.profile), (self.overrides.where, self.overrides.profile)

    @property
    def parts(self) -> Iterator[tuple[Locate, Any]]:
        """The parts of both profiles that can change rows: the profiles and their data sets."""
        for locate, profile in self.profiles:
            yield locate, profile
            for label, entry in profile.datasets.items():
                yield _within(locate, "datasets", label), entry

    def setting(self, name: str) -> Any:
        """Return a setting of the profile, such as `threads`; `--set` has precedence."""
        changed = self.overrides.profile
        return getattr(changed if name in changed.model_fields_set else self.profile, name)

    def limit(self, name: str) -> Any:
        """Return `timeout` or `memory` of the profile, or else of the suite; `--set` has precedence."""
        found = self.setting(name)
        return getattr(self.suite, name) if found is None else found

    def merged(self, name: str, cls: type[AnySettings]) -> AnySettings | None:
        """Return a setting with fields of its own, such as `timing`, merged from both profiles; None without one."""
        given = [part for _, profile in self.profiles if (part := getattr(profile, name)) is not None]
        return overlay(cls, given) if given else None

    @cached_property
    def rows(self) -> dict[str, tuple[AnyRow, Where]]:
        """The rows: all, or those that the profile's `rows` names, in the suite's order, and those of `--layer`."""
        rows, named = self.suite.rows(self.extra), self.setting("rows")
        if named is None:
            return rows
        added = {class_name(spec) for spec in self.extra}
        return {label: row for label, row in rows.items() if label in named or label in added}

    @cached_property
    def cells(self) -> dict[str, list[Cell]]:
        """Column -> every row in it."""
        rows = self.rows.items()
        return {column: [_cell(self, column, label, *row) for label, row in rows] for column in self.columns}

    @property
    def every_cell(self) -> list[Cell]:
        """Every row in every column, columns outermost."""
        return [cell for cells in self.cells.values() for cell in cells]

    @cached_property
    def columns(self) -> dict[str, str]:
        """Label of each column -> the name of its data set, or the label."""
        given = getattr(self.profile, self.suite.columns_key)
        return {label: getattr(entry, "data", None) or label for label, entry in given.items()}

    @cached_property
    def data(self) -> dict[str, Column]:
        """Label -> the data set, merged from the file and `--set`."""
        return {label: _column(self, label, entry) for label, entry in self.profile.datasets.items()}

    def unused(self, place: tuple[str, ...], way_out: str) -> Iterator[Problem]:
        """Yield a problem for each part of the suite that gives a setting that has no effect in suites of its kind."""
        for cell in self.every_cell:
            for locate, part in cell.sources:
                for key in place[:-1]:
                    part = getattr(part, key)
                if place[-1] in part.model_fields_set:
                    rule = f"{'.'.join(place)}: has no effect in a suite of kind {self.suite.kind}"
                    yield locate(place).says(f"{rule}; {way_out}", at_key=True)


def _column(scope: Scope, label: str, entry: DataEntry) -> Column:
    where, changed = scope.where.at(("datasets", label)), scope.overrides.profile.datasets.get(label)
    places = {name: where.at(("options", name)) for name in entry.options}
    options, set_places = dict(entry.options), {}
    if changed is not None:
        inside = _within(scope.overrides.where, "datasets", label)
        options |= changed.options
        places |= {name: inside(("options", name)) for name in changed.options}
        set_places = {key: inside((key,)) for key in changed.model_fields_set}
        entry = overlay(type(entry), [entry, changed])
    return Column(label, where, entry, options, places, set_places, scope.suite.folder)


def _cell(scope: Scope, column: str, label: str, row: AnyRow, where: Where) -> Cell:
    """Merge everything that the suite says about one row in one column."""
    sources = tuple(_sources(scope, column, label, row, where))
    options: dict[str, Any] = {}
    places: dict[str, Where] = {}
    last = where
    for locate, source in sources:
        if isinstance(source, Overlay) and source.options:
            options |= source.options
            places |= {name: locate(("options", name)) for name in source.options}
            last = locate(("options",))
    layer = row.reference(label, options, scope.suite.folder)
    return Cell(label, column, row, last, layer, places, sources)


def _sources(
    scope: Scope, column: str, label: str, row: AnyRow, where: Where
) -> Iterator[tuple[Locate, Suite | Profile | DataEntry | Overlay]]:
    """Yield the parts of the suite that set something for a row in a column, from weakest to strongest."""
    yield Where(()).at, scope.suite
    by_star = label not in getattr(scope.suite, row.section)
    for locate, profile in scope.profiles:
        yield locate, profile
        entry = profile.datasets.get(column)
        if entry is not None:
            yield _within(locate, "datasets", column), entry
        if profile is scope.profile:
            yield where.at, row
        overlays: Mapping[str, Overlay] = getattr(profile, row.section)
        for key in (EVERY_LAYER,) * by_star + (label,):
            if key in overlays:
                yield _within(locate, row.section, key), overlays[key]
        if entry is not None and label in getattr(entry, row.section):
            yield _within(locate, "datasets", column, row.section, label), getattr(entry, row.section)[label]


def _within(locate: Locate, *parts: str) -> Locate:
    return lambda place: locate((*parts, *place))


def class_name(spec: str) -> str:
    """Return the label of a row that `--layer` adds."""
    return spec.rpartition(":")[2]
