"""The three parts of a data set, with the facts on which a density of them depends."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.core.errors import DataError, UserError
from harness.core.settings import NewSplit, Unit
from harness.datasets._store.selection import shuffle_and_cut
from harness.datasets._store.store import Prepared
from harness.datasets._values.encoding import IDENTITY, choose_encoding
from harness.datasets._values.file_options import Widths
from harness.datasets._values.lattice import Lattice, Survey

PIECE = 1024  # events whose checksum is taken at once: the arrays may be mapped files, larger than the memory


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
        noise: for real entries, whether uniform noise on [0, 1) is added to each channel, as the user has stated its
            width, the step of `lattices`; None: to whole numbers on a lattice alone.
        digits: for real entries with noise, how many significant digits the values of each channel have: the noise of
            an entry is as wide as the unit of its last one, and at least 1; None: it is 1 wide.
        log_widths: of real entries to which noise was added before, the mean logarithm of its widths in each split,
            from which the floor follows.
        no_floor: why no resolution floor can be stated although the values were dequantised, such as a filter.
        checksum: of the prepared arrays, SHA-256; None for generated or installed data. `Dataset.loaded` sets that of
            third-party data.
        left_out: what of the source is not in the arrays and may be missed, such as files of another format, and other
            notes on the source.
        warnings: facts of the source by which results may mislead, such as a column that numbers the rows.
        test_share: the share of all events that may be in test which this test split has; None: that of the arrays.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    levels: int | None
    description: str
    lattice: bool = True
    steps: tuple[tuple[float, str], ...] | None = None
    lattices: tuple[Lattice, ...] | None = None
    noise: tuple[bool, ...] | None = None
    digits: tuple[int, ...] | None = None
    log_widths: tuple[float, ...] | None = None
    no_floor: str | None = None
    checksum: str | None = None
    left_out: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    test_share: float | None = None

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
    def of(cls, prepared: Prepared, **facts: Any) -> Splits:
        """Return the arrays "train", "validation" and "test" of the cache, with their checksum.

        `facts` are further attributes, and the notes from the preparation of the arrays those that it lacks.
        """
        facts = {name: _tuples(value) for name, value in prepared.notes.items()} | facts
        if facts.get("lattices") is not None:
            facts["lattices"] = tuple(Lattice(*lattice) for lattice in facts["lattices"])
        train, validation, test = map(prepared.array, ("train", "validation", "test"))
        return cls(train, validation, test, checksum=prepared.checksum, **facts)

    def parts(self) -> dict[str, np.ndarray]:
        """Return the splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def redrawn(self, new: NewSplit) -> Splits:
        """Return a new split of these events: pooled, shuffled by the seed, and cut into parts of the same sizes.

        It keeps the checksum, as the same arrays and seed give the same split.
        """
        drawn: dict[str, Any] = self.parts()
        pooled, kept = "train, validation and test", ""
        if new.keep_test:
            del drawn["test"]
            pooled, kept = "train and validation", ", test kept"
        how = f"split {new.seed}: the events of {pooled} pooled, shuffled and cut into the same sizes{kept}"
        drawn = dict(zip(drawn, shuffle_and_cut(list(drawn.values()), new.seed), strict=True))
        return replace(self, description=f"{self.description}; {how}", **drawn)

    def with_noise(self, name: str, noise: Widths, labels: Sequence[str]) -> Splits:
        """Return these splits of the data set `name` in units of stated widths of noise; `labels` are of the channels.

        Raises:
            UserError: their values have levels, or noise already.
            DataError: a width leaves gaps between the values of a lattice, or is lost in float32.
        """
        if self.levels is not None or self.log_widths is not None or self.noise is not None:
            raise UserError(f"{name}: noise is for values without levels that have none of their own; leave it out")
        axes = (-1, *[1] * (len(self.shape) - 1))
        lattices = self.lattices or [IDENTITY] * self.shape[0]
        offsets = np.reshape([lattice.offset for lattice in lattices], axes)
        steps = np.reshape([lattice.step for lattice in lattices], axes)
        values = {part: offsets + events * steps for part, events in self.parts().items()}
        survey = Survey.of(*values.values())
        encoding = choose_encoding(name, survey, "sequence", None, noise, labels)
        facts: dict[str, Any] = encoding.facts("sequence") | {"steps": None}
        facts |= {part: encoding.encode(events, np.arange(len(events))) for part, events in values.items()}
        units = f"; units: {', '.join(dict.fromkeys(unit for _, unit in self.steps))}" if self.steps else ""
        return replace(self, description=f"{self.description}{encoding.noise_text}{units}", **facts)

    def share_of_test(self, new: NewSplit | None) -> float | None:
        """Return the share of all events that may be in test which that of a new split has: 0 if it is kept."""
        if new is None:
            return None
        share = len(self.test) / sum(map(len, self.parts().values())) if self.test_share is None else self.test_share
        return 0.0 if new.keep_test else share

    def digest(self) -> str:
        """Return the SHA-256 of the arrays and of the facts on which their density depends."""
        facts: tuple[Any, ...] = (self.levels, self.lattice, self.steps, self.lattices, self.no_floor)
        facts += () if self.noise is None else (self.noise,)
        facts += () if self.digits is None else (self.digits,)
        digest = hashlib.sha256(repr(facts).encode())
        for name, values in self.parts().items():
            digest.update(f"{name} {values.shape} {values.dtype.str}".encode())
            for start in range(0, len(values), PIECE):
                digest.update(values[start : start + PIECE].tobytes())
        return digest.hexdigest()

    @property
    def noisy(self) -> tuple[bool, ...]:
        """Return, for each channel, whether noise over a cell of width 1 is added to its entries."""
        return (self.lattice,) * self.shape[0] if self.noise is None else self.noise

    @property
    def shape(self) -> tuple[int, ...]:
        """The event shape (C, *spatial)."""
        return self.train.shape[1:]

    @property
    def unit(self) -> Unit:
        """Return the unit of results, bits/dim of a level for images and nats/dim on [-1, 1] for sequences."""
        return "nats_per_dim" if self.levels is None else "bits_per_dim"


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
