"""Suites: how their files are found and read, and the bases of those of each kind.

All faults of one step are reported at once, each with its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, PrivateAttr, ValidationError, create_model

from harness.core.errors import SuiteError, nearest
from harness.core.explain import Place, Problem, explain, shown
from harness.core.run_options import PROJECT
from harness.core.settings import DataRef, Flag, Settings
from harness.core.texts import control_fault
from harness.core.third_party import is_third_party
from harness.core.trial import Trial
from harness.planning.cells import Cell, Changes, Scope, merged, option_behind, raise_faults
from harness.planning.strict_yaml import Document, document_of, read
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

Source = str | Path | Mapping[str, Any]
"""A suite: the path of a file, the name of a packaged one, or a mapping with the content of a file."""

PACKAGED = PROJECT / "suites"
LIST_SUITES = "`python -m harness list suites` shows the packaged ones"


class Origin(NamedTuple):
    """The file of a suite and what it joins."""

    document: Document  # the content of the file, with the positions of its parts
    folder: Path | None  # of the file, where a FILE.py:CLASS is looked for first; None for a packaged suite
    data: Path | None  # the data root, where the columns of a table may be looked up
    examined: bool  # whether it belongs to a suite that joins others, and may train on a published mistake
    parts: Mapping[str, Suite] = MappingProxyType({})  # label -> a suite that it joins
    content: Mapping[str, Any] = MappingProxyType({})  # of options of the command line, laid over that of the file
    changes: Changes = ()


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
            rows[section] = (labelled(part(f"{section.title()}Row", model, section, {})), model.field)
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
        """Yield the problems of a profile that only this kind can have; names and options have been checked."""
        return iter(())

    def rows(self) -> dict[str, tuple[AnyRow, Place]]:
        """Return the rows in order, each with its place, `*` replaced by the registered layers that no row names."""
        rows: dict[str, tuple[AnyRow, Place]] = {}
        for section in self.sections:
            for label, row in getattr(self, section).items():
                labels = [label]
                if section == "layers" and label == EVERY_LAYER:
                    from layers import LAYERS  # imports torch

                    named = {row.named(label) for label, row in self.layers.items() if row.covers_layer}
                    ours = {name for name, cls in LAYERS.items() if cls.__module__.startswith("layers.")}
                    labels = sorted(ours - named)
                rows |= dict.fromkeys(labels, (row, (section, label)))
        return rows

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
        return [column.name for column in Scope(self, profile).data.values()]


def packaged_suites() -> list[str]:
    """Return the names of the suites that come with the package."""
    return sorted(path.stem for path in PACKAGED.glob("*.yaml"))


def read_suite(source: Source, *, data: Path | None = None, examined: bool = False) -> SuiteFile:
    """Read a suite and check its structure, without its layers and data sets (and without torch).

    Args:
        source: a path, or a packaged suite ("quickstart"; "suites/quickstart.yaml" is found outside of a checkout too),
            or a mapping, whose paths are relative to the working directory.
        data: the data root.
        examined: whether it belongs to a suite of claims, and may train on a published mistake.

    Raises:
        SuiteError: with every fault, each as ``file:line:column: message``, or with the keys of a mapping.
    """
    document, folder = find_document(source)
    _require_mapping(document)
    if isinstance(document.value.get("include"), str):
        document.value = _over_included(document, folder)
    suite = validated(Origin(document, folder, data, examined), document.value)
    suite._origin = suite.origin._replace(parts=_joined(suite, suite.origin))
    return suite


def validated(origin: Origin, content: Mapping[str, Any]) -> SuiteFile:
    """Return the suite of this content, which has the changes of the origin; a SuiteError names every fault."""
    kinds = {kind: cls.file_model() for kind, cls in sorted(SUITES.items())}
    names: Any = Literal[tuple(kinds)]
    try:
        # First the kind alone, as the other keys depend on it.
        create_model("Head", kind=(names, ...)).model_validate(content)
        suite: SuiteFile = kinds[content["kind"]].model_validate(content)
    except ValidationError as error:
        faults = explain(error, kinds.get(str(content.get("kind")), SuiteFile))
        named = [fault._replace(origin=option_behind(origin.changes, fault.place)) for fault in faults]
        raise_faults(origin.document, named)
        raise
    suite._origin = origin
    return suite


def _require_mapping(document: Document) -> None:
    if not isinstance(document.value, dict):
        what = "the file is empty" if document.value is None else "the top level is not a mapping"
        raise SuiteError(f"{document.name}:1:1: {what}; a suite has the keys suite, kind, layers, profiles")


def _over_included(document: Document, folder: Path | None) -> Any:
    """Return the content of a suite over that of the suite that it includes, whose name it does not inherit."""
    name, where = document.value["include"], document.located(document.position(("include",)), "include: ")
    beside = folder is not None and Path(name).name == name and (folder / name).is_file()
    if not beside and _packaged_name(name) is None:
        hint = nearest(name, packaged_suites())
        raise SuiteError(f"{where}{name!r} is neither a packaged suite nor a file in the folder of this one; {hint}")
    base, _ = find_document(folder / name if folder is not None and beside else name)
    _require_mapping(base)
    if "include" in base.value:
        raise SuiteError(f"{where}{name!r} includes another suite itself; include that one, and repeat the changes")
    return merged({key: base.value[key] for key in base.value if key != "suite"}, document.value)


def _joined(suite: SuiteFile, origin: Origin) -> dict[str, Suite]:
    """Return the suites that a suite joins, by label."""
    parts: dict[str, Suite] = {}
    for label, file in suite.part_files.items():
        place = file if origin.folder is None else origin.folder / file
        part = None if origin.examined else read_suite(place, data=origin.data, examined=True)
        if not isinstance(part, Suite):
            raise SuiteError(f"{origin.document.name}: a claim is tested by trials, and suites of claims have none")
        parts[label] = part
    if len({part.suite for part in parts.values()}) < len(parts):
        raise SuiteError(f"{origin.document.name}: two of the suites that it names have one name; rename one")
    return parts


def find_document(source: Source) -> tuple[Document, Path | None]:
    """Return a suite as YAML and its folder; None for a packaged one."""
    if isinstance(source, Mapping):
        name = source.get("suite")
        return document_of(source, name if isinstance(name, str) and name else "the suite"), Path()
    if not isinstance(source, (str, Path)):
        raise SuiteError(f"suite: expected the path of a file, the name of a suite or a mapping, got {shown(source)}")
    path, name = Path(source).expanduser(), str(source)
    if (fault := control_fault(name)) is not None:  # the plan names the file
        raise SuiteError(f"the suite: {fault}, and rename the file")
    try:
        packaged = None if path.is_file() else _packaged_name(name)
        there = path.exists()
    except OSError as error:
        raise SuiteError(f"{name}: cannot be read ({error.strerror}); name a suite file ({LIST_SUITES})") from error
    if packaged:
        return read(PACKAGED / f"{packaged}.yaml", f"{packaged}.yaml" if name == packaged else name), None
    if not there:
        hint = nearest(Path(name).stem, packaged_suites())
        raise SuiteError(f"{name}: no such file, and no packaged suite of this name; {hint} ({LIST_SUITES})")
    return read(path, name), path.parent


def _packaged_name(name: str) -> str | None:
    """Return the packaged suite of a name such as `quickstart`, `quickstart.yaml` or `suites/quickstart.yaml`."""
    stem = name.replace("\\", "/").removesuffix(".yaml").removeprefix("suites/")
    names, folder = packaged_suites(), stem.rpartition("/")[0]  # of a part of a packaged suite of claims
    there = stem in names or (folder in names and (PACKAGED / f"{stem}.yaml").is_file())
    return stem if there else None
