"""The interface of a data set: its description, its checked options, and its integer-valued splits."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import ValidationError

from harness.core.errors import DataError, UserError, nearest
from harness.core.settings import Settings, Unit, size_fault
from harness.core.third_party import from_here, is_own, third_party_errors
from harness.datasets._store.store import Prepared, Store
from harness.datasets._values.lattice import Lattice

PIECE = 1024  # events whose checksum is taken at once: the arrays may be mapped files, larger than the memory


@dataclass(frozen=True)
class DatasetInfo:
    """The description of a data set, for listings and reports.

    Attributes:
        title: one line.
        kind: images of shape (C, H, W) or sequences of shape (C, L).
        what: description of an event, the number of events, and their split.
        size: amount of data to download.
        licence: the terms, as far as they are stated.
        source: origin of the data.
        how_to_get: instructions for the user.
        lattice: whether the values are integers on a lattice, so that a density needs dequantisation.
    """

    title: str
    kind: Literal["image", "sequence"]
    what: str = "not stated"
    size: str = "not stated"
    licence: str = "not stated"
    source: str = "not stated"
    how_to_get: str = "not stated"
    lattice: bool = True


@dataclass(frozen=True)
class Splits:
    """The three disjoint parts of a data set, each of shape (N, C, *spatial).

    Attributes:
        train, validation, test: integer arrays where `lattice` is true, of one dtype and event shape.
        levels: number of levels of an image's pixels, which are 0..levels-1; None for sequences.
        description: contents of these arrays, for reports.
        lattice: whether the values are integers.
        steps: for a sequence, the size of one lattice step of each channel with its unit, such as (0.05, "mmHg").
        lattices: for each channel, the lattice whose k-th value an entry k stands for, in the units of the source; real
            entries (`lattice` false) stand for values between. None: an entry is the value itself.
        no_floor: why no resolution floor can be stated although the values were dequantised, such as a filter.
        checksum: of the prepared arrays, SHA-256; None for generated or installed data. `Dataset.loaded` sets that of
            third-party data.
        left_out: what of the source is not in the arrays and may be missed, such as files of another format.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    levels: int | None
    description: str
    lattice: bool = True
    steps: tuple[tuple[float, str], ...] | None = None
    lattices: tuple[Lattice, ...] | None = None
    no_floor: str | None = None
    checksum: str | None = None
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.lattices is not None and len(self.lattices) != self.shape[0]:
            raise DataError(f"{len(self.lattices)} lattices for {self.shape[0]} channels; give one for each")
        for name, values in self.parts().items():
            if not len(values):
                raise DataError(f"the {name} split is empty")
            if values.shape[1:] != self.shape or values.dtype != self.train.dtype:
                raise DataError(
                    f"the {name} split has events {values.shape[1:]} of {values.dtype}, "
                    f"the train split {self.shape} of {self.train.dtype}; they must agree"
                )
            if self.lattice and not np.issubdtype(values.dtype, np.integer):
                raise DataError(f"the {name} split holds {values.dtype}; values on a lattice are integers")
            if self.levels is None or (values.dtype == np.uint8 and self.levels >= 256):
                continue  # true for every value of the type; avoids reading a large array
            if not (values.min() >= 0 and values.max() < self.levels):
                raise DataError(
                    f"the {name} split has values {values.min()}..{values.max()}; "
                    f"{self.levels} levels are 0..{self.levels - 1}"
                )

    @classmethod
    def of(cls, prepared: Prepared, levels: int | None, description: str, **facts: Any) -> Splits:
        """Return the arrays "train", "validation" and "test" of the cache, with their checksum and further facts."""
        train, validation, test = map(prepared.array, ("train", "validation", "test"))
        return cls(train, validation, test, levels, description, checksum=prepared.checksum, **facts)

    def parts(self) -> dict[str, np.ndarray]:
        """Return the splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def digest(self) -> str:
        """Return the SHA-256 of the arrays and of the facts on which their density depends."""
        facts = (self.levels, self.lattice, self.steps, self.lattices, self.no_floor)
        digest = hashlib.sha256(repr(facts).encode())
        for name, values in self.parts().items():
            digest.update(f"{name} {values.shape} {values.dtype.str}".encode())
            for start in range(0, len(values), PIECE):
                digest.update(values[start : start + PIECE].tobytes())
        return digest.hexdigest()

    @property
    def shape(self) -> tuple[int, ...]:
        """The event shape (C, *spatial)."""
        return self.train.shape[1:]

    @property
    def unit(self) -> Unit:
        """Return the unit of results, bits/dim of a level for images and nats/dim on [-1, 1] for sequences."""
        return "nats_per_dim" if self.levels is None else "bits_per_dim"


class NoOptions(Settings):
    """A data set without options."""


DATASETS: dict[str, type[Dataset]] = {}
"""Name -> class of every registered data set, filled by `import harness.datasets`."""


class Dataset(ABC):
    """A source of splits. Subclass with ``class Mine(Dataset, name="mine")`` to register it.

    A class in a file outside this package needs no name: a suite calls it ``FILE.py:CLASS``. Its constructor takes no
    arguments; options are the fields of `options_model`, against which they are checked.

    Attributes:
        name: the name in a suite, and the start of messages; the name of the class if it is not registered.
        info: description for listings and reports.
        on_disk: whether `load` reads files, of the data root or fetched, and prepares arrays of them; no: what it
            gives is generated, or installed with a package.
        paths: options that name a file or folder, which may be beside the suite as well as in the data root.
        imports: modules that `load` imports and that take long to import; the trials of a run share one import.
    """

    name: str
    info: ClassVar[DatasetInfo]
    on_disk: ClassVar[bool] = False
    paths: ClassVar[tuple[str, ...]] = ()
    imports: ClassVar[tuple[str, ...]] = ()
    options_model: ClassVar[type[Settings]] = NoOptions

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.name = name or cls.__name__
        if name is None:
            return
        if name in DATASETS:
            other = DATASETS[name]
            raise ValueError(
                f"data set name {name!r} is taken by {other.__module__}.{other.__qualname__}; "
                f"give {cls.__module__}.{cls.__qualname__} another name"
            )
        DATASETS[name] = cls

    def option_errors(self, options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return every fault of the options as (option name, message); empty if they are right."""
        try:
            self.options_model.model_validate(dict(options))
        except ValidationError as error:
            return [
                self._fault(str(item["loc"][0]), item["type"], item["msg"], item["input"]) for item in error.errors()
            ]
        return []

    def _fault(self, name: str, kind: str, rule: str, value: Any) -> tuple[str, str]:
        fields = self.options_model.model_fields
        if kind == "extra_forbidden":
            return name, f"{self.name}: no option {name!r}; {nearest(name, fields)}"
        if kind == "missing":
            return name, f"{self.name}: the option {name!r} is missing; it is {fields[name].description}"
        return (
            name,
            f"{self.name}: {name} = {value!r} {rule.removeprefix('Input ')}; it is {fields[name].description}",
        )

    def parse(self, options: Mapping[str, Any]) -> Settings:
        """Return the options with their defaults filled in, or raise a UserError that names every fault."""
        faults = self.option_errors(options)
        if faults:
            raise UserError("\n".join(message for _, message in faults))
        return self.options_model.model_validate(dict(options))

    @abstractmethod
    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the event shape (C, *spatial) under these options, known without loading anything."""

    def kind(self, options: Mapping[str, Any]) -> Literal["image", "sequence"]:
        """Return the kind of an event under these options."""
        return self.info.kind

    def channels(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Return the names of the channels under these options; none where they have no names."""
        return ()

    def event_shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return `shape`, checked.

        Raises:
            UserError: `shape` fails, or returns no shape of this kind of event.
        """
        with self._errors_of("shape"):
            shape = tuple(self.shape(options))
            axes = 3 if self.kind(options) == "image" else 2
        if len(shape) != axes or not all(isinstance(size, int) and size >= 1 for size in shape):
            raise UserError(
                f"data set {self.name}: shape returns {shape}; it must be {axes} positive whole numbers for kind: "
                f"{self.kind(options)}"
            )
        if (fault := size_fault(shape)) is not None:
            raise UserError(f"data set {self.name}: {fault}")
        return shape

    def located(self, options: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
        """Return the options with what is beside the suite, in `folder`, named as seen from the working directory."""
        placed = dict(options)
        for name in self.paths:
            if folder is None or not isinstance(options.get(name), str) or Path(options[name]).is_absolute():
                continue
            path = (folder / options[name]).resolve()
            with contextlib.suppress(OSError):  # too long for the name of a file, which `Store.find` reports
                if path.exists():
                    here = from_here(path)
                    placed[name] = str(here) if here.is_absolute() else f"./{here}"
        return placed

    def check(self, store: Store, options: Mapping[str, Any]) -> Splits | None:
        """Ensure that `loaded` will succeed: find, download, check and prepare; return the splits if it loaded them.

        Third-party data are loaded once, as an error in their code is better found before any training; nothing is
        done for generated and installed data.

        Raises:
            DataMissing: something is missing and cannot be downloaded.
            DataError: something is damaged, or not as expected.
            UserError: the options are wrong, or third-party code fails.
        """
        self.parse(options)
        return self.loaded(store, options) if self.on_disk or not is_own(type(self)) else None

    def loaded(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits of `load`, checked; those of third-party code with the checksum of their content.

        Raises: as `check`.
        """
        if is_own(type(self)) and not self.on_disk:
            return self.load(store, options)
        with self._errors_of("load"):
            splits = self.load(store, options)
        if not isinstance(splits, Splits):
            raise UserError(
                f"data set {self.name}: load returns {type(splits).__name__}; it must return harness.datasets.Splits"
            )
        if splits.shape != self.event_shape(options):
            raise UserError(
                f"data set {self.name}: load returns events {splits.shape}, and shape returns "
                f"{self.event_shape(options)}; they must agree"
            )
        return splits if is_own(type(self)) else replace(splits, checksum=splits.digest())

    def _errors_of(self, method: str) -> AbstractContextManager[None]:
        return third_party_errors(f"data set {self.name}", method, Path(inspect.getfile(type(self))))

    @abstractmethod
    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits; equal options give equal arrays, which may be read-only."""
