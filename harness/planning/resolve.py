"""Lay a suite's settings over one another: what one row is in one column of one profile.

Each setting keeps the place that set it last, so that a complaint about its value points there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from harness.core.settings import FlowSettings, LayerRef, Settings, TrainingSettings
from harness.core.third_party import reference
from harness.planning.strict_yaml import Place
from harness.planning.suite_errors import Finding
from harness.planning.suite_model import EVERY_LAYER, DataEntry, FlowRow, Overlay, Profile, Row, Suite

AnyRow = Row | FlowRow
AnySettings = TypeVar("AnySettings", bound=Settings)


@dataclass(frozen=True)
class Where:
    """The place of a setting in the file, or the command line option that it came from."""

    place: Place
    origin: str | None = None

    def says(self, message: str, at_key: bool = False) -> Finding:
        """A finding about this place."""
        return Finding(self.place, message, at_key, self.origin)

    def at(self, place: Place) -> Where:
        """A part of this place."""
        return Where((*self.place, *place), self.origin)

    def inside(self, *parts: str) -> Where:
        """A part of this place, by its keys."""
        return self.at(parts)


@dataclass(frozen=True)
class Overrides:
    """What `--set` says: one more profile, laid over everything, and which option said which part of it."""

    profile: Profile = field(default_factory=lambda: Profile())
    origins: Mapping[Place, str] = field(default_factory=dict)

    def where(self, place: Place) -> Where:
        """The command line option behind a part of the profile."""
        for known, text in self.origins.items():
            if known[: len(place)] == place or place[: len(known)] == known:
                return Where(place, text)
        return Where(place, "--set")


@dataclass(frozen=True)
class Scope:
    """One profile of a suite under the command line's changes."""

    suite: Suite
    name: str
    overrides: Overrides = Overrides()
    extra: tuple[str, ...] = ()  # third-party layers that the command line adds as rows

    @property
    def profile(self) -> Profile:
        """The profile as the file has it."""
        return next(profile for name, profile in self.suite.profiles.items() if name == self.name)

    @property
    def place(self) -> Place:
        """The profile's place in the file."""
        return ("profiles", self.name)

    @property
    def columns(self) -> list[str]:
        """Data sets or sweeps, in order."""
        return list(self.profile.sweeps if self.suite.kind == "runtime" else self.profile.datasets)

    @property
    def averages(self) -> dict[str, tuple[str, ...]]:
        """Of each column of averages, the columns it is the mean of; what `--set` says goes first."""
        return {**self.profile.averages, **self.overrides.profile.averages}

    def setting(self, name: str) -> Any:
        """A setting of the profile, such as `seeds`; what `--set` says goes first."""
        changed = self.overrides.profile
        return getattr(changed if name in changed.model_fields_set else self.profile, name)

    def limit(self, name: str) -> Any:
        """`timeout` or `memory` of the profile, or else of the suite; what `--set` says goes first."""
        found = self.setting(name)
        return getattr(self.suite, name) if found is None else found

    def widths(self, column: str) -> tuple[int, ...]:
        """The coupling widths at which a column's models are counted; what `--set` says goes first."""
        for profile in (self.overrides.profile, self.profile):
            entry = profile.datasets.get(column)
            found = entry.widths if entry is not None and entry.widths is not None else profile.widths
            if found is not None:
                return found
        return ()


@dataclass(frozen=True)
class Column:
    """A data set as one column uses it."""

    label: str
    where: Where
    entry: DataEntry
    options: dict[str, Any]
    option_places: dict[str, Where]


@dataclass(frozen=True)
class Cell:
    """A row in a column: the layer with its options, and the settings of its flow and training."""

    row: str
    column: str
    where: Where  # where the options were set last, or else the row
    layer: LayerRef
    option_places: dict[str, Where]
    flow: FlowSettings
    training: TrainingSettings


def overlay(cls: type[AnySettings], parts: Sequence[AnySettings]) -> AnySettings:
    """Settings of which each part gives some fields; the last part that gives a field wins."""
    return cls(**{name: getattr(part, name) for part in parts for name in part.model_fields_set})


def row_name(label: str, row: AnyRow) -> str:
    """The layer or baseline of a row."""
    return (row.baseline if isinstance(row, FlowRow) else row.layer) or label


def rows_of(suite: Suite, extra: Sequence[str] = ()) -> dict[str, tuple[AnyRow, Where]]:
    """The rows in order: layers, `*` replaced by the registered ones that no row names, `extra` layers, baselines."""
    rows: dict[str, tuple[AnyRow, Where]] = {}
    for label, row in suite.layers.items():
        where = Where(("layers", label))
        if label == EVERY_LAYER:
            rows |= dict.fromkeys(_unnamed_layers(suite), (row, where))
        else:
            rows[label] = (row, where)
    for spec in extra:
        rows[class_name(spec)] = (Row(layer=spec), Where((), f"--layer {spec}"))
    return rows | {label: (row, Where(("flows", label))) for label, row in suite.flows.items()}


def rows_in(scope: Scope) -> dict[str, tuple[AnyRow, Where]]:
    """The rows of a profile: all, or those that its `rows` names, in the suite's order; `--layer` adds to both."""
    rows, named = rows_of(scope.suite, scope.extra), scope.setting("rows")
    if named is None:
        return rows
    added = {class_name(spec) for spec in scope.extra}
    return {label: row for label, row in rows.items() if label in named or label in added}


def cell(scope: Scope, column: str, label: str, row: AnyRow, where: Where) -> Cell:
    """Merge everything that the suite says about one row in one column."""
    sources = list(_sources(scope, column, label, row, where))
    options: dict[str, Any] = {}
    places: dict[str, Where] = {}
    last = where
    for locate, source in sources:
        if isinstance(source, Row | FlowRow | Overlay) and source.options:
            options |= source.options
            places |= {name: locate(("options", name)) for name in source.options}
            last = locate(("options",))
    return Cell(
        row=label,
        column=column,
        where=last,
        layer=layer_reference(label, row, options, scope.suite.folder),
        option_places=places,
        flow=overlay(FlowSettings, [source.flow for _, source in sources]),
        training=overlay(TrainingSettings, [source.training for _, source in sources]),
    )


def cells(scope: Scope) -> Iterator[Cell]:
    """Every row in every column of the profile, columns outermost."""
    rows = rows_in(scope)
    return (cell(scope, column, label, *rows[label]) for column in scope.columns for label in rows)


def column_of(scope: Scope, label: str) -> Column:
    """Merge what the file and `--set` say about one data set."""
    entry, where = scope.profile.datasets[label], Where((*scope.place, "datasets", label))
    changed = scope.overrides.profile.datasets.get(label)
    places = {name: where.inside("options", name) for name in entry.options}
    options = dict(entry.options)
    if changed is not None:
        options |= changed.options
        set_options = (("datasets", label, "options", name) for name in changed.options)
        places |= {place[-1]: scope.overrides.where(place) for place in set_options}
        entry = overlay(DataEntry, [entry, changed])
    return Column(label, where, entry, options, places)


def layer_reference(label: str, row: AnyRow, options: dict[str, Any], folder: Path | None) -> LayerRef:
    """Return the layer or baseline of a row."""
    spec = row_name(label, row)
    if isinstance(row, FlowRow):
        return LayerRef.model_validate({"row": label, "layer": spec, "options": options, "baseline": True})
    spec, source = reference(spec, folder)
    content = {"row": label, "layer": spec, "options": options, "source": source, "oracle": row.oracle}
    return LayerRef.model_validate(content)


Source = Suite | Profile | DataEntry | Row | FlowRow | Overlay
Locate = Callable[[Place], Where]
"""From a place inside a source to where it stands."""


def _sources(scope: Scope, column: str, label: str, row: AnyRow, where: Where) -> Iterator[tuple[Locate, Source]]:
    """Everything that speaks about a row in a column, from weakest to strongest."""
    kind = "flows" if isinstance(row, FlowRow) else "layers"
    yield Where(()).at, scope.suite
    profiles: list[tuple[Profile, Locate]] = [(scope.profile, Where(scope.place).at)]
    profiles.append((scope.overrides.profile, scope.overrides.where))
    for profile, locate in profiles:
        yield locate, profile
        entry = profile.datasets.get(column)
        if entry is not None:
            yield _within(locate, "datasets", column), entry
        if profile is scope.profile:
            yield where.at, row
        overlays: dict[str, Overlay] = getattr(profile, kind)
        starred = kind == "layers" and label not in scope.suite.layers and EVERY_LAYER in overlays
        for key in [EVERY_LAYER] * starred + [label] * (label in overlays):
            yield _within(locate, kind, key), overlays[key]
        if entry is not None and label in getattr(entry, kind):
            yield _within(locate, "datasets", column, kind, label), getattr(entry, kind)[label]


def _within(locate: Locate, *parts: str) -> Locate:
    return lambda place: locate((*parts, *place))


def _unnamed_layers(suite: Suite) -> list[str]:
    """Registered layers that lie in the package `layers` and that no row of the suite names."""
    from layers import LAYERS

    named = {row.layer or label for label, row in suite.layers.items() if not row.oracle}
    return sorted(name for name, cls in LAYERS.items() if cls.__module__.startswith("layers.") and name not in named)


def class_name(spec: str) -> str:
    """The label of a row that `--layer` adds."""
    return spec.rpartition(":")[2]
