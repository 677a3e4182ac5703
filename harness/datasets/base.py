"""The interface of a data set: its description, its checked options, and its integer-valued splits."""

from __future__ import annotations

import contextlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError, create_model
from pydantic_core import ErrorDetails

from harness.core.errors import UserError, nearest
from harness.core.settings import NewSplit, Settings, size_fault
from harness.core.third_party import from_here, is_own, third_party_errors
from harness.datasets._store.store import Store
from harness.datasets._values.file_options import NOISE, WIDTH, StatedNoise
from harness.datasets._values.splits import Splits


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
        shape: the event shape, if it does not depend on the options.
    """

    title: str
    kind: Literal["image", "sequence"]
    what: str = "not stated"
    size: str = "not stated"
    licence: str = "not stated"
    source: str = "not stated"
    how_to_get: str = "not stated"
    lattice: bool = True
    shape: tuple[int, ...] | None = None


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
        adds_noise: whether `loaded` adds the noise that the option `noise` states; `load` need not.
    """

    name: str
    info: ClassVar[DatasetInfo]
    on_disk: ClassVar[bool] = False
    paths: ClassVar[tuple[str, ...]] = ()
    imports: ClassVar[tuple[str, ...]] = ()
    adds_noise: ClassVar[bool] = False
    options_model: ClassVar[type[Settings]] = NoOptions

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.name = name or cls.__name__
        pixels = isinstance(info := getattr(cls, "info", None), DatasetInfo) and info.kind == "image" and info.lattice
        if not pixels and "noise" not in cls.options_model.model_fields:  # the noise of pixels is one level
            fields: dict[str, Any] = {"noise": (StatedNoise, Field(None, description=f"{WIDTH}: {NOISE}"))}
            model = cls.options_model
            cls.options_model = create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)
            cls.adds_noise = True
        if name is None:
            return
        if name in DATASETS:
            other = DATASETS[name]
            raise ValueError(
                f"data set name {name!r} is taken by {other.__module__}.{other.__qualname__}; "
                f"give {cls.__module__}.{cls.__qualname__} another name"
            )
        DATASETS[name] = cls

    def propose(self, path: Path) -> dict[str, Any] | None:
        """Return options for a file or folder that this data set reads, for `init`; None if it reads no such one."""
        return None

    def option_errors(self, options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return every fault of the options as (option name, message); empty if they are right."""
        try:
            self.options_model.model_validate(dict(options))
        except ValidationError as error:
            return [self._fault(fault) for fault in error.errors()]
        return []

    def _fault(self, fault: ErrorDetails) -> tuple[str, str]:
        name, fields = str(fault["loc"][0]), self.options_model.model_fields
        if fault["type"] == "extra_forbidden":
            return name, f"{self.name}: no option {name!r}; {nearest(name, fields)}"
        if fault["type"] == "missing":
            return name, f"{self.name}: the option {name!r} is missing; it is {fields[name].description}"
        rule = fault["msg"].removeprefix("Input ")
        return name, f"{self.name}: {name} = {fault['input']!r} {rule}; it is {fields[name].description}"

    def parse(self, options: Mapping[str, Any]) -> Any:
        """Return the options with their defaults filled in, or raise a UserError that names every fault."""
        faults = self.option_errors(options)
        if faults:
            raise UserError("\n".join(message for _, message in faults))
        return self.options_model.model_validate(dict(options))

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the event shape (C, *spatial), known without loading anything: by default of `info` or the options."""
        return self.info.shape or tuple(self.parse(options).shape)

    def kind(self, options: Mapping[str, Any]) -> Literal["image", "sequence"]:
        """Return the kind of an event: by default that of the options, or of `info`."""
        kind: Literal["image", "sequence"] = getattr(self.parse(options), "kind", self.info.kind)
        return kind

    def channels(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Return the names of the channels: by default those of the options; none where they have no names."""
        names: Sequence[str] = getattr(self.parse(options), "channels", ())
        return names

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

    def located(self, options: Mapping[str, Any], folder: Path | None, root: Path | None = None) -> dict[str, Any]:
        """Return the options with what is beside the suite, in `folder`, named as seen from the working directory.

        What the options leave to the data, such as the columns of a table, is stated too, so that the event shape is
        known; `root` is the data root.
        """
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

    def split_fault(self, options: Mapping[str, Any], keep_test: bool = False) -> str | None:
        """Return the reason why these data have no new splits, known without loading anything; None if they have.

        Images have; sequences have not unless a class says so here, as neighbours in time may overlap or resemble each
        other.
        """
        if self.kind(options) == "image" or self._draws:
            return None
        return (
            f"data set {self.name}: has one split, as sequences may overlap or resemble each other. Leave `split` "
            "out of repetitions.vary; or, in the class of the data set, return None from split_fault if its events "
            "share nothing, or give `load` an argument `new`"
        )

    def check(self, store: Store, options: Mapping[str, Any], new: NewSplit | None = None) -> Splits | None:
        """Ensure that `loaded` will succeed: find, download, check and prepare; return the splits if it loaded them.

        Third-party data are loaded once, as an error in their code is better found before any training; nothing is
        done for generated and installed data.

        Raises:
            DataMissing: something is missing and cannot be downloaded.
            DataError: something is damaged, or not as expected.
            UserError: the options are wrong, the data have no new splits, or third-party code fails.
        """
        self.parse(options)
        if self.on_disk or not is_own(type(self)) or options.get("noise") is not None:
            return self.loaded(store, options, new)
        self._refuse(options, new)
        return None

    def loaded(self, store: Store, options: Mapping[str, Any], new: NewSplit | None = None) -> Splits:
        """Return the splits, checked; those of third-party code with a checksum of the content.

        Raises: as `check`.
        """
        self._refuse(options, new)
        if new is not None and not self._draws:  # with the noise and the checksum of `load`
            return self.loaded(store, options).redrawn(new)
        with self._errors_of("load"):
            splits = self.load(store, options) if new is None else self.load(store, options, new)  # type: ignore[call-arg]
        if not isinstance(splits, Splits):
            raise UserError(
                f"data set {self.name}: load returns {type(splits).__name__}; it must return harness.datasets.Splits"
            )
        if splits.shape != self.event_shape(options):
            raise UserError(
                f"data set {self.name}: load returns events {splits.shape}, and shape returns "
                f"{self.event_shape(options)}; they must agree"
            )
        noise = getattr(self.parse(options), "noise", None) if self.adds_noise else None
        if noise is not None:
            labels = list(self.channels(options)) or [f"channel {number}" for number in range(splits.shape[0])]
            splits = splits.with_noise(self.name, noise, labels)
        return splits if is_own(type(self)) else replace(splits, checksum=splits.digest())

    @property
    def _draws(self) -> bool:
        """Whether `load` draws new splits itself."""
        return "new" in inspect.signature(self.load).parameters

    def _refuse(self, options: Mapping[str, Any], new: NewSplit | None) -> None:
        if new is None:
            return
        with self._errors_of("split_fault"):
            fault = self.split_fault(options, new.keep_test)
        if fault is not None:
            raise UserError(fault)

    def _errors_of(self, method: str) -> AbstractContextManager[None]:
        return third_party_errors(f"data set {self.name}", method, Path(inspect.getfile(type(self))))

    @abstractmethod
    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits; equal options give equal arrays, which may be read-only.

        A class whose events share values with others, so that they cannot be pooled and shuffled for a new split, has a
        third argument, `new: NewSplit | None = None`, and returns that split, a function of the arguments alone (see
        `Splits.test_share`).
        """
