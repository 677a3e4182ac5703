"""The keys that suites of every kind share, as pydantic models; a kind adds its own keys in subclasses.

Settings are given in layers, each of which says only what it changes. From weakest to strongest: the suite, the
profile, the data set, the suite's row, the profile's row, the data set's row, and `--set` on the command line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from harness.core.arguments import optional
from harness.core.records import WHOLE
from harness.core.run_options import parse_bytes, parse_timeout
from harness.core.settings import Count, FlowSettings, LayerRef, Settings, size_fault
from harness.core.texts import formless
from harness.core.third_party import reference

ProfileName = Literal["smoke", "quick", "local", "paper"]

SUITES: dict[str, Any] = {}
"""Name of a kind -> the class of its suites (`harness.planning.suite.SuiteFile`)."""

EVERY_LAYER = "*"
"""The row that stands for every registered layer that no other row names."""

MOST_CELLS = 5_000  # rows times columns of a profile, averages included
MOST_TRIALS = 100_000  # cells times seeds, without the candidates of a tuning


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PydanticCustomError("float_type", "a number")
    return value


def _small(shape: tuple[int, ...]) -> tuple[int, ...]:
    if (fault := size_fault(shape)) is not None:
        raise ValueError(fault)
    return shape


OrEmpty = BeforeValidator(lambda value: {} if value is None else value)
"""Read `digits:` without a value as `digits: {}`."""


def _seen(label: str) -> str:
    if all(map(formless, label)):
        raise PydanticCustomError("label", "has no visible character")
    return label


# A comma and an equals sign would clash with `--only dataset=a,b`, a bar with tables.
Label = Annotated[
    str, StringConstraints(pattern=r"^[^\s,=|]([^,=|\n\r\t]*[^\s,=|])?$", max_length=80), AfterValidator(_seen)
]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)]
Shape = Annotated[tuple[Count, ...], Field(min_length=2, max_length=3), AfterValidator(_small)]
Average = Annotated[tuple[Label, ...], Field(min_length=2)]  # the columns of which another is the mean
Widths = Annotated[tuple[Count, ...], Field(min_length=1)]
Duration = Annotated[float | None, optional(parse_timeout, float | str)]
Memory = Annotated[int | None, optional(parse_bytes, float | str)]
Threads = Count | Literal["auto"]  # auto: the cores, divided by --jobs
OptionValues = Annotated[dict[str, Any], OrEmpty]
Number = Annotated[int | float, BeforeValidator(_number), Field(gt=-WHOLE, lt=WHOLE)]


class LayerSettings(Settings):
    """The settings of one row in one column, merged from all parts of the suite, of a kind without a backbone.

    Attributes:
        options: of the layer or baseline, by name.
    """

    stated: ClassVar[Mapping[str, Collection[str]]] = {"options": ("layers", "flows")}
    """Key -> the sections whose rows may state it, "" for the suite, profiles and columns; every part, if not here."""

    options: OptionValues = Field(default_factory=dict)

    @classmethod
    def keys(cls, section: str) -> list[str]:
        """Return the keys that rows of a section may state, and changes of them; "": suite, profiles and columns."""
        return [key for key in cls.model_fields if section in cls.stated.get(key, (section,))]


class CellSettings(LayerSettings):
    """The settings of one row in one column, merged from all parts of the suite.

    Attributes:
        flow: settings of the backbone.
    """

    flow: FlowSettings = FlowSettings()


def labelled(model: Any) -> Any:
    """Return the type of a mapping of labels to a model; a label without content stands for an empty one."""
    return Mapping[Label, Annotated[model, OrEmpty]]


class AnyRow(Settings):
    """One row of the table."""

    section: ClassVar[str]  # the key of the suite, and of parts that change the row, below which it stands
    key: ClassVar[str]  # the key that names the object under test; without it, the row's label is the name
    levels: ClassVar[bool]  # whether the object meets events at the levels of the flow, rather than whole ones
    field: ClassVar[Any] = Field(min_length=1, description='the rows, by label; "*": all layers that no other names')

    def named(self, label: str) -> str:
        """Return the name of the object under test."""
        return getattr(self, self.key) or label

    def resolve(self, label: str, folder: Path | None) -> type[Any]:
        """Return the class of the object under test, from a file of the suite's `folder` first; UserError: none."""
        raise NotImplementedError

    def build(self, cls: type[Any], label: str, shape: Shape, options: dict[str, Any], flow: FlowSettings) -> None:
        """Build the object for events of this shape; raise UnsupportedShape or UnsupportedEvent if it cannot be."""
        raise NotImplementedError

    def reference(self, label: str, options: Mapping[str, Any], folder: Path | None) -> LayerRef:
        """Return the row as a part of a trial's settings.

        FILE.py:CLASS is relative to the working directory, from which trials import it.
        """
        spec, source = reference(self.named(label), folder)
        return LayerRef.model_validate({"row": label, "layer": spec, "options": options, "source": source})


class Row(AnyRow):
    """A row that is a layer in the shared backbone.

    Attributes:
        layer: a registered name, FILE.py:CLASS or package.module:CLASS; without it, the row's label is the name.
    """

    section: ClassVar[str] = "layers"
    key: ClassVar[str] = "layer"
    levels: ClassVar[bool] = True

    layer: Annotated[str, Field(min_length=1)] | None = None

    @property
    def covers_layer(self) -> bool:
        """True if the row counts as the row of its layer, so that `*` adds no other."""
        return True

    def resolve(self, label: str, folder: Path | None) -> type[Any]:
        """Return the class of the layer."""
        from harness.core.layer_classes import resolve_layer  # imports torch

        return resolve_layer(self.named(label), folder)

    def build(self, cls: type[Any], label: str, shape: Shape, options: dict[str, Any], flow: FlowSettings) -> None:
        """Build the layer with weights of the row's own seed."""
        from flows import seeded

        with seeded(0, label):
            cls(shape, **options)


class ColumnKeys(Settings):
    """One column of the table: a data set and its settings.

    Attributes:
        data: the name of the data set; without it, the column's label is the name.
        rows: labels of the rows on this data set; null: those of the profile.
        options: of the data set (`python -m harness list datasets`).
    """

    data: Annotated[str, Field(min_length=1)] | None = None
    rows: Annotated[tuple[Label, ...], Field(min_length=1)] | None = None
    options: OptionValues = Field(default_factory=dict)


class ShapedColumn(ColumnKeys):
    """A column of a kind whose trials need an event shape and no data.

    Attributes:
        shape: (C, L) or (C, H, W) of an event; null: the data set's.
    """

    shape: Shape | None = None


class ProfileKeys(Settings):
    """One size of the suite. The options `--set` of the command line are read as another profile, laid over it.

    Attributes:
        threads: of each trial; auto: the cores, divided by --jobs.
        timeout: of each trial; null: the suite's.
        memory: of each trial; null: the suite's.
        rows: labels of the rows of this profile; null: all.
    """

    threads: Threads = 1
    timeout: Duration = None
    memory: Memory = None
    rows: Annotated[tuple[Label, ...], Field(min_length=1)] | None = None


class Published(Settings):
    """Numbers of a publication, shown beside ours; rows may be models that the suite does not train.

    A count of parameters belongs to a coupling width: the column's in `widths`, else the row's, the value `width`.

    Attributes:
        source: the publication.
        measure: name of the column of results that the numbers belong to.
        values: row -> column -> number.
        widths: column -> coupling width.
    """

    source: str
    measure: str
    values: dict[str, dict[str, Number]]
    widths: dict[str, Count] = Field(default_factory=dict)

    def width(self, row: str, column: str) -> Number | None:
        """Return the coupling width that a published count belongs to; None: any."""
        return self.widths.get(column, self.values.get(row, {}).get("width"))
