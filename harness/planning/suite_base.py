"""The bases of suites: a file that can be planned, and one whose rows and columns are trials of a kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PrivateAttr

from harness.core.settings import DataRef, Flag, FlowSettings, Settings
from harness.core.third_party import third_party_specs
from harness.core.trial import Trial
from harness.planning.problems import Problem, Where
from harness.planning.resolve import Cell, Scope, class_name
from harness.planning.strict_yaml import Document, document_of
from harness.planning.suite_model import (
    EVERY_LAYER,
    SUITES,
    AnyRow,
    Duration,
    Label,
    Memory,
    OrEmpty,
    Profile,
    ProfileName,
    Published,
    Row,
    Slug,
)


class SuiteFile(Settings):
    """A suite of any kind, as the command line uses it; `parts` are the suites whose trials it runs.

    Subclass with ``class RuntimeSuite(Suite, kind="runtime")`` to register the suites of a kind.

    Attributes:
        suite: the name of the suite, and of the folder of its runs.
        kind: the kind of its trials.
        title: one line, the heading of the report.
        question: the question that the suite answers, below the title.
        cluster: resources of --executor slurm or dask, with the keys of both.
    """

    suite: Slug
    kind: str
    title: Annotated[str, Field(min_length=1)] | None = None  # None: the name
    question: str = ""
    cluster: Annotated[Mapping[str, Any], OrEmpty] = Field(default_factory=dict)  # checked by the executors

    part_key: ClassVar[str | None] = None  # the key by which `--only` selects parts, of a suite that joins others

    _document: Document | None = PrivateAttr(default=None)
    _folder: Path | None = PrivateAttr(default=None)
    _examined: bool = PrivateAttr(default=False)

    def attach(self, document: Document, folder: Path | None, examined: bool) -> Self:
        """Keep the origin of the suite; raise a SuiteError if other files that it names have faults."""
        self._document, self._folder, self._examined = document, folder, examined
        return self

    def __init_subclass__(cls, *, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind in SUITES:
            raise ValueError(f"kind {kind!r} is taken by {SUITES[kind].__module__}; give this one another name")
        if kind is not None:
            SUITES[kind] = cls

    @classmethod
    def quoted(cls, trial: Trial, published: Published | None) -> dict[str, Any]:
        """Return the published numbers for the measures of a trial, by column."""
        return {}

    @property
    def document(self) -> Document:
        """The content of the file, with the positions of its parts; of a suite made otherwise, its settings."""
        return self._document or document_of(self.model_dump(mode="json", exclude_unset=True), self.suite)

    @property
    def folder(self) -> Path | None:
        """The folder of the file, where a FILE.py:CLASS is looked for first; None for a packaged suite."""
        return self._folder

    @property
    def examined(self) -> bool:
        """True if the suite belongs to one of kind claims, and may train on a published mistake."""
        return self._examined

    @property
    def parts(self) -> Mapping[str, Suite]:
        """Label -> suite, of those whose trials this one runs."""
        raise NotImplementedError

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
            rows = [(row.noun, row.named(label)) for key in part.sections for label, row in getattr(part, key).items()]
            profiles = part.profiles.values()
            data = [entry.data or label for profile in profiles for label, entry in profile.datasets.items()]
            named = [*rows, *(("data set", name) for name in data)]
            specs += [(spec, part.folder) for noun, name in named for spec in third_party_specs(noun, name)]
        return specs

    def data_names(self, profile: str) -> list[str]:
        """Return the names of the data sets of a profile."""
        profiles = [part.profiles[name] for part in self.parts.values() for name in part.profiles if name == profile]
        return [entry.data or label for chosen in profiles for label, entry in chosen.datasets.items()]

    def about(self, label: str) -> dict[str, Any]:
        """Return the fields of a part's section in the plan, beside its name and head."""
        return {}


class Suite(SuiteFile):
    """A suite of rows and columns. Each kind has a subclass with its keys and its trials.

    Attributes:
        unsupported: a layer that cannot serve a shape is a marked row, not a problem of the suite.
        timeout: of each trial, in seconds or such as "30 min"; null: no limit.
        memory: of each trial, in bytes or such as "4GiB"; null: no limit.
        flow: the backbone.
        layers: the rows, by label; "*" stands for every registered layer that no other row names.
        published: numbers of a publication, shown beside the measured ones.
        profiles: the sizes of the suite.
    """

    columns_key: ClassVar[str] = "datasets"  # the key of profiles that lists the columns
    sections: ClassVar[tuple[str, ...]] = ("layers",)  # the keys below which rows stand, here and in profiles

    unsupported: Flag = False
    timeout: Duration = None
    memory: Memory = None
    flow: FlowSettings = FlowSettings()
    layers: Annotated[Mapping[Label, Annotated[Row, OrEmpty]], Field(min_length=1)]
    published: Published | None = None
    profiles: Annotated[Mapping[ProfileName, Profile], Field(min_length=1)]

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

    def leaves_out_missing(self, scope: Scope) -> bool:
        """Return whether data sets of `references` whose files are missing are left out of a run."""
        return False

    def problems(self, scope: Scope) -> Iterator[Problem]:
        """Yield the problems of a profile that only this kind can have; `harness.planning.suite_checks` has the rest.

        The class of the profile's settings has checked the structure; names may be unknown.
        """
        return iter(())

    def rows(self, extra: Sequence[str] = ()) -> dict[str, tuple[AnyRow, Where]]:
        """Return the rows in order, `*` replaced by the registered layers that no row names, then `extra` layers."""
        rows: dict[str, tuple[AnyRow, Where]] = {}
        for label, row in self.layers.items():
            where = Where(("layers", label))
            if label == EVERY_LAYER:
                rows |= dict.fromkeys(self._unnamed_layers(), (row, where))
            else:
                rows[label] = (row, where)
        for spec in extra:
            rows[class_name(spec)] = (Row(layer=spec), Where((), f"--layer {spec}"))
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

    def event_shapes(self, scope: Scope, cell: Cell) -> list[tuple[int, ...]]:
        """Return the event shapes of a cell's column; raise a UserError if its data set is unknown or misconfigured."""
        from harness.datasets import find_dataset

        column = scope.data[cell.column]
        if column.shape is not None:
            return [column.shape]
        dataset = find_dataset(column.name, self.folder)
        dataset.parse(column.entry.options)
        return [dataset.event_shape(column.entry.options)]

    def layer_shapes(self, scope: Scope, cell: Cell) -> list[tuple[int, ...]]:
        """Return the event shapes that the layer of a cell meets: those in its flow."""
        from harness.pipeline.models import layer_shapes  # imports torch

        return [inner for shape in self.event_shapes(scope, cell) for inner in layer_shapes(shape, cell.flow)]

    def option_sets(self, cell: Cell) -> list[dict[str, Any]]:
        """Return the options of a cell's layer, and those that its trials may settle on instead."""
        return [dict(cell.layer.options)]

    def option_place(self, cell: Cell, option: str) -> Where:
        """Return the place that set an option of a cell's layer, or else that of the row's options."""
        return cell.place("options", option) or cell.where

    def refusal(self, scope: Scope, cell: Cell) -> str | None:
        """Return the reason why the kind has no trial for a cell, apart from its shapes; None if it has one."""
        return None

    @cached_property
    def verdicts(self) -> dict[tuple[Any, ...], Any]:
        """Results of earlier checks of options and shapes, which profiles share (`harness.planning.suite_checks`)."""
        return {}

    def plan_settings(self, scope: Scope) -> dict[str, Any]:
        """Return further fields of the plan, for the reports of this kind."""
        return {}

    @property
    def parts(self) -> Mapping[str, Suite]:
        """The suite alone."""
        return {"": self}
