"""The bases of suites: a file that can be planned, and one whose rows and columns are trials of a kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, PrivateAttr, create_model

from harness.core.explain import Problem
from harness.core.settings import DataRef, Flag, Settings
from harness.core.third_party import is_third_party
from harness.core.trial import Trial
from harness.planning.cells import Cell, Scope, Where
from harness.planning.strict_yaml import Document
from harness.planning.suite_model import (
    EVERY_LAYER,
    SUITES,
    AnyRow,
    CellSettings,
    ColumnKeys,
    Duration,
    LayerSettings,
    Memory,
    OrEmpty,
    ProfileKeys,
    ProfileName,
    Published,
    Row,
    Slug,
    labelled,
)


class Origin(NamedTuple):
    """The file of a suite and what it joins."""

    document: Document  # the content of the file, with the positions of its parts
    folder: Path | None  # of the file, where a FILE.py:CLASS is looked for first; None for a packaged suite
    data: Path | None  # the data root, where the columns of a table may be looked up
    examined: bool  # whether it belongs to a suite that joins others, and may train on a published mistake
    parts: Mapping[str, Suite] = MappingProxyType({})  # label -> a suite that it joins


class SuiteFile(Settings):
    """A suite of any kind, as the command line uses it; `parts` are the suites whose trials it runs.

    Subclass with ``class RuntimeSuite(Suite, kind="runtime")`` to register the suites of a kind.

    Attributes:
        suite: the name of the suite, and of the folder of its runs.
        kind: the kind of its trials.
        include: a packaged suite, or a file in the same folder, whose content this file changes.
        title: one line, the heading of the report.
        question: the question that the suite answers, below the title.
        cluster: resources of --executor slurm or dask, with the keys of both.
    """

    suite: Slug
    kind: str
    include: str | None = None
    title: Annotated[str, Field(min_length=1)] | None = None  # None: the name
    question: str = ""
    cluster: Annotated[Mapping[str, Any], OrEmpty] = Field(default_factory=dict)  # checked by the executors

    part_key: ClassVar[str | None] = None  # the key by which `--only` selects parts, of a suite that joins others

    _origin: Origin = PrivateAttr()

    def __init_subclass__(cls, *, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind in SUITES:
            raise ValueError(f"kind {kind!r} is taken by {SUITES[kind].__module__}; give this one another name")
        if kind is not None:
            SUITES[kind] = cls

    @classmethod
    def file_model(cls) -> type[Self]:
        """Return the model that reads files of this kind."""
        return cls

    @property
    def origin(self) -> Origin:
        """The file and what it joins."""
        return self._origin

    def attach(self, origin: Origin) -> Self:
        """Keep the origin of the suite; return it."""
        self._origin = origin
        return self

    @classmethod
    def quoted(cls, trial: Trial, published: Published | None) -> dict[str, Any]:
        """Return the published numbers for the measures of a trial, by column."""
        return {}

    @property
    def part_files(self) -> Mapping[str, str]:
        """Label -> the file of a suite that this one joins, from its folder."""
        return {}

    @property
    def parts(self) -> Mapping[str, Suite]:
        """Label -> suite, of those whose trials this one runs."""
        return self.origin.parts

    @property
    def profile_names(self) -> list[str]:
        """The profiles that all parts have, in order."""
        first, *others = (part.profiles for part in self.parts.values())
        return [name for name in first if all(name in other for other in others)]

    @property
    def third_party(self) -> list[tuple[str, Path | None]]:
        """The third-party code that the suite names, each with the folder where its file is looked for first."""
        specs = []
        for part in self.parts.values():
            rows = [row.named(label) for key in part.sections for label, row in getattr(part, key).items()]
            named = [*rows, *(name for profile in part.profiles for name in part.data_names(profile))]
            specs += [(name, part.origin.folder) for name in filter(is_third_party, named)]
        return specs

    def about(self, label: str) -> dict[str, Any]:
        """Return the fields of a part's section in the plan, beside its name and head."""
        return {}


class Suite(SuiteFile):
    """A suite of rows and columns. Each kind has a subclass with its keys and its trials.

    Attributes:
        unsupported: a layer that cannot serve a shape is a marked row, not a problem of the suite; of the layers that
            `*` stands for, always.
        timeout: of each trial, in seconds or such as "30 min"; null: no limit.
        memory: of each trial, in bytes or such as "4GiB"; null: no limit.
        published: numbers of a publication, shown beside the measured ones.
    """

    cell_model: ClassVar[type[LayerSettings]] = CellSettings  # of the settings that rows, columns and profiles state
    sections: ClassVar[Mapping[str, type[AnyRow]]] = {"layers": Row}  # the keys of rows, each with the rows' own keys
    columns_key: ClassVar[str] = "datasets"  # the key of profiles that lists the columns
    column_model: ClassVar[type[Settings]] = ColumnKeys  # of the columns' own keys
    profile_model: ClassVar[type[ProfileKeys]] = ProfileKeys
    shapes: ClassVar[Literal["flow", "events", "unchecked"]] = "flow"
    """The events on which layers are built before a run: those inside the flow, the columns', or none."""

    unsupported: Flag = False
    timeout: Duration = None
    memory: Memory = None
    published: Published | None = None

    if TYPE_CHECKING:
        layers: Mapping[str, Row]
        profiles: Mapping[str, Any]

    @classmethod
    @cache
    def file_model(cls) -> type[Self]:
        """Return the model that reads files of this kind: each part has its own keys, and those of cells."""

        def part(noun: str, base: type[Settings], section: str, keys: dict[str, Any]) -> Any:
            for key in cls.cell_model.keys(section):
                setting = cls.cell_model.model_fields[key]
                keys[key] = (setting.annotation, setting)
            name = f"{cls.__name__.removesuffix('Suite')}{noun}"
            return create_model(name, __base__=base, __module__=cls.__module__, **keys)

        changes, rows = dict[str, Any](), dict[str, Any]()
        for section, model in cls.sections.items():
            changed = labelled(part(f"{section.title()}Changes", Settings, section, {}))
            changes[section] = (changed, Field(default_factory=dict, description="changes of rows, by label"))
            rows[section] = model.rows_of(labelled(part(f"{section.title()}Row", model, section, {})))
        column = cls.column_model
        if cls.columns_key == "datasets":
            column = part("Column", column, "", dict(changes))
        columns: Any = (labelled(column), Field(default_factory=dict, description="the columns, by label"))
        profile: Any = part("Profile", cls.profile_model, "", {**changes, cls.columns_key: columns})
        sizes = Field(min_length=1, description="the sizes of the suite")
        return part("Suite", cls, "", {**rows, "profiles": (Mapping[ProfileName, profile], sizes)})

    def expand(self, scope: Scope, common: Mapping[str, Any], data: Mapping[str, Sequence[DataRef]]) -> Iterator[Trial]:
        """Yield the trials of a profile in their order.

        Args:
            scope: the profile.
            common: the settings that trials of all kinds have.
            data: column -> the `references` of its data set, with the checksums of the arrays.
        """
        raise NotImplementedError

    def references(self, scope: Scope) -> dict[str, tuple[DataRef, ...]]:
        """Return column -> data set, once for each repetition in order, of a kind whose trials read data."""
        return {}

    def problems(self, scope: Scope) -> Iterator[Problem]:
        """Yield the problems of a profile that only this kind can have; `harness.planning.suite_checks` has the rest.

        The class of the profile's settings has checked the structure; names may be unknown.
        """
        return iter(())

    def rows(self) -> dict[str, tuple[AnyRow, Where]]:
        """Return the rows in order, `*` replaced by the registered layers that no row names."""
        rows: dict[str, tuple[AnyRow, Where]] = {}
        for section in self.sections:
            for label, row in getattr(self, section).items():
                every = section == "layers" and label == EVERY_LAYER
                rows |= dict.fromkeys(self._unnamed_layers() if every else [label], (row, Where((section, label))))
        return rows

    def _unnamed_layers(self) -> list[str]:
        from layers import LAYERS  # imports torch

        named = {row.named(label) for label, row in self.layers.items() if row.covers_layer}
        return sorted(
            name for name, cls in LAYERS.items() if cls.__module__.startswith("layers.") and name not in named
        )

    def repeats(self, scope: Scope) -> dict[str, tuple[int, ...]]:
        """Return the values of the settings that repeat trials ("seed", "repetition"), of a kind that has such."""
        return {}

    def option_sets(self, cell: Cell) -> list[dict[str, Any]]:
        """Return the options of a cell's layer, and those that its trials may settle on instead."""
        return [dict(cell.layer.options)]

    @cached_property
    def verdicts(self) -> dict[tuple[Any, ...], Any]:
        """Results of earlier checks of options and shapes, which profiles share (`harness.planning.suite_checks`)."""
        return {}

    @property
    def parts(self) -> Mapping[str, Suite]:
        """The suite alone."""
        return {"": self}

    def data_names(self, profile: str) -> list[str]:
        """Return the names of the data sets of a profile."""
        chosen = self.profiles.get(profile)
        entries = getattr(chosen, "datasets", {})
        return [entry.data or label for label, entry in entries.items()]
