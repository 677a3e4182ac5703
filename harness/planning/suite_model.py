"""What a suite file may say, as pydantic models; their field names are the keys of the file.

Settings are given in layers, each of which says only what it changes. From weakest to strongest: the suite, the
profile, the data set, the suite's row, the profile's row, the data set's row, and `--set` on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from harness.core.settings import (
    Augmentation,
    Count,
    DataRef,
    Examination,
    Flag,
    FlowSettings,
    Operation,
    Settings,
    TimingSettings,
    TrainingSettings,
)
from harness.core.third_party import reference
from harness.planning.cluster import Cluster
from harness.planning.quantities import Duration, Memory
from harness.planning.strict_yaml import Document

Kind = Literal["density", "parameters", "runtime", "examination"]
ProfileName = Literal["smoke", "quick", "local", "paper"]

MAP = ("permute", "augmentation", "preprocessing", "dequantise", "allow_unbounded")
"""Keys of a data set that decide how its raw values become a flow's input."""

EVERY_LAYER = "*"
"""The row that stands for every registered layer that no other row names."""

# A comma and an equals sign would clash with `--only dataset=a,b`, a bar with tables.
Label = Annotated[str, StringConstraints(pattern=r"^[^\s,=|]([^,=|\n\r\t]*[^\s,=|])?$", max_length=80)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)]
Shape = Annotated[tuple[Count, ...], Field(min_length=2, max_length=3)]


def _empty_mapping(value: Any) -> Any:
    """`digits:` with nothing behind it means `digits: {}`."""
    return {} if value is None else value


def _long_names(value: Any) -> Any:
    """`lr` is short for `learning_rate`."""
    if isinstance(value, dict) and "lr" in value and "learning_rate" not in value:
        return {"learning_rate" if key == "lr" else key: item for key, item in value.items()}
    return value


def _seeds(value: Any) -> Any:
    """A number N means the seeds 0..N-1; a list names them."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= 10_000:
            raise PydanticCustomError("seeds", "a number of seeds is between 1 and 10000, or a list names the seeds")
        return tuple(range(value))
    if not isinstance(value, (list, tuple)):
        raise PydanticCustomError(
            "seeds", "expected a whole number of seeds or a list of seeds, got {value}", {"value": repr(value)}
        )
    if len(set(map(repr, value))) < len(value):
        raise PydanticCustomError("seeds", "a seed stands twice in the list; name each once")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PydanticCustomError("float_type", "a number")
    return value


Threads = Count | Literal["auto"]  # auto: the cores, divided by --jobs
Training = Annotated[TrainingSettings, BeforeValidator(_long_names)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Seeds = Annotated[tuple[Seed, ...], BeforeValidator(_seeds), Field(min_length=1)]
OptionValues = Annotated[dict[str, Any], BeforeValidator(_empty_mapping)]
Number = Annotated[int | float, BeforeValidator(_number)]


class Overlay(Settings):
    """What a profile or a data set changes in a row."""

    options: OptionValues = Field(default_factory=dict)
    flow: FlowSettings = FlowSettings()
    training: Training = TrainingSettings()


class Row(Settings):
    """One row of the table: a layer, its options, and what is special about its flow."""

    layer: Annotated[str, Field(min_length=1)] | None = None  # None: the row's label is the layer's name
    options: OptionValues = Field(default_factory=dict)
    oracle: Flag = False  # the flow starts with the inverse of the data's permutation: the bound of the other rows
    flow: FlowSettings = FlowSettings()
    training: Training = TrainingSettings()


class FlowRow(Settings):
    """One row that is a whole flow of its own, a baseline: its options, and its size and training."""

    baseline: Annotated[str, Field(min_length=1)] | None = None  # None: the row's label is the baseline's name
    options: OptionValues = Field(default_factory=dict)
    flow: FlowSettings = FlowSettings()
    training: Training = TrainingSettings()


def _names(value: Any) -> Any:
    """`[maf, realnvp]` is short for rows of these names without settings of their own."""
    if not isinstance(value, list):
        return _empty_mapping(value)
    if not all(isinstance(name, str) for name in value) or len(set(value)) < len(value):
        raise PydanticCustomError("flows", "a list of flows names each baseline once; a mapping gives them settings")
    return {name: {} for name in value}


Overlays = dict[Label, Annotated[Overlay, BeforeValidator(_empty_mapping)]]


class DataEntry(Settings):
    """One column of the table: a data set, and what is special about it."""

    data: Annotated[str, Field(min_length=1)] | None = None  # None: the column's label is the data set's name
    options: OptionValues = Field(default_factory=dict)
    shape: Shape | None = None  # of a suite of parameters or examinations, in place of the data set's own
    widths: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None  # likewise, in place of the profile's
    permute: Annotated[int, Field(ge=0, strict=True)] | None = None
    augmentation: Augmentation = "none"
    preprocessing: Literal["scale", "logit"] = "scale"
    dequantise: Flag = True
    allow_unbounded: Flag = False
    flow: FlowSettings = FlowSettings()
    training: Training = TrainingSettings()
    layers: Overlays = Field(default_factory=dict)
    flows: Overlays = Field(default_factory=dict)

    def reference(self, label: str, options: Mapping[str, Any], folder: Path | None) -> DataRef:
        """Return the data of a trial; a relative FILE.py is looked for in `folder` first."""
        own = {key: getattr(self, key) for key in MAP}
        name, source = reference(self.data or label, folder)
        content = {"label": label, "name": name, "source": source, "options": dict(options), **own}
        return DataRef.model_validate(content)


class Timing(TimingSettings):
    """How layers are timed.

    `batch` is for a density suite, which times at its data sets' shapes. `processes` is for a runtime suite: how many
    processes, one after the other, measure each point of a sweep, so that their medians can be compared.
    """

    batch: Count = 64
    processes: Count = 1


class Sweep(Settings):
    """A curve: event shapes and batch sizes, of which one varies."""

    shapes: Annotated[tuple[Shape, ...], Field(min_length=1)]
    batch: Count | None = None
    batches: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes, one or more."""
        return self.batches or ((self.batch,) if self.batch is not None else ())

    @model_validator(mode="after")
    def _one_batch_key(self) -> Sweep:
        if (self.batch is None) == (self.batches is None):
            raise PydanticCustomError("sweep", "a sweep has either batch (a number) or batches (a list)")
        return self


class Profile(Settings):
    """One size of the suite. The command line's `--set` is the same, laid over it."""

    seeds: Seeds = (0,)
    threads: Threads = 1
    timeout: Duration = None  # of each trial; None: the suite's
    memory: Memory = None  # likewise
    remark: str = ""  # below the table of likelihoods
    rows: Annotated[tuple[Label, ...], Field(min_length=1)] | None = None  # those that this profile trains; None: all
    flow: FlowSettings = FlowSettings()
    training: Training = TrainingSettings()
    layers: Overlays = Field(default_factory=dict)
    flows: Overlays = Field(default_factory=dict)
    datasets: dict[Label, Annotated[DataEntry, BeforeValidator(_empty_mapping)]] = Field(default_factory=dict)
    # Columns of means over other columns, such as a mean over patients.
    averages: dict[Label, Annotated[tuple[Label, ...], Field(min_length=2)]] = Field(default_factory=dict)
    timing: Timing | None = None
    widths: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    sweeps: dict[Label, Sweep] = Field(default_factory=dict)


class Published(Settings):
    """Numbers of a publication, shown beside ours; rows may be models that the suite does not train.

    A count of parameters belongs to a coupling width: the column's in `widths`, else the row's, the value `width`.
    """

    source: str
    measure: str
    values: dict[str, dict[str, Number]]
    widths: dict[str, Count] = Field(default_factory=dict)

    def width(self, row: str, column: str) -> Number | None:
        """The coupling width that a published count belongs to; None: any."""
        return self.widths.get(column, self.values.get(row, {}).get("width"))


class Suite(Settings):
    """A suite file."""

    suite: Slug
    kind: Kind
    title: Annotated[str, Field(min_length=1)]
    question: str = ""
    unsupported: Flag = False  # a layer that cannot serve a shape is a row that says so, not a fault of the suite
    timeout: Duration = None  # of each trial; None: as long as it takes
    memory: Memory = None  # of each trial; None: as much as there is
    cluster: Annotated[Cluster, BeforeValidator(_empty_mapping)] = Cluster()
    flow: FlowSettings = FlowSettings()
    training: Training = TrainingSettings()
    examine: tuple[Examination, ...] = ()  # of a suite of examinations
    operations: Annotated[tuple[Operation, ...], Field(min_length=1)] = ("forward", "forward_backward", "inverse")
    layers: Annotated[dict[Label, Annotated[Row, BeforeValidator(_empty_mapping)]], Field(min_length=1)]
    # Rows that are no layer in the backbone but flows of their own: a list of baselines, or a mapping like `layers`.
    flows: Annotated[dict[Label, Annotated[FlowRow, BeforeValidator(_empty_mapping)]], BeforeValidator(_names)] = Field(
        default_factory=dict
    )
    published: Published | None = None
    profiles: Annotated[dict[ProfileName, Profile], Field(min_length=1)]

    _document: Document | None = PrivateAttr(default=None)
    _folder: Path | None = PrivateAttr(default=None)
    _examined: bool = PrivateAttr(default=False)

    @property
    def document(self) -> Document:
        """The file, for the positions of its parts."""
        return self._document or Document(name=self.suite)

    @property
    def folder(self) -> Path | None:
        """Where the file lies; a row's FILE.py:CLASS is looked for there first."""
        return self._folder

    @property
    def examined(self) -> bool:
        """Whether the suite belongs to one of kind claims, and may train on a published mistake."""
        return self._examined

    def attach(self, document: Document, folder: Path | None, examined: bool = False) -> Suite:
        """Remember where the suite came from."""
        self._document, self._folder, self._examined = document, folder, examined
        return self
