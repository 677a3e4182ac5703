"""The definition of one trial: frozen, hashable settings, from which its id is derived.

Every kind of trial defines a subclass in its own folder. All other code asks a trial through the properties below and
names no kind. This module does not import torch, so that a plan can be printed without it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import PlainValidator, SerializeAsAny

from harness.core.kinds import UnknownKind, kind_of
from harness.core.settings import Count, DataRef, LayerRef, Settings, settings_digest

if TYPE_CHECKING:
    from harness.core.records import Record


class Trial(Settings):
    """One unit of work, run by one process and stored as one record.

    The id is a readable slug and a hash over all settings: a changed setting gives a new trial.

    Attributes:
        repeats: the setting in which repetitions of a measurement differ, such as "seed"; empty without repetitions.
        stage: trials of a lower stage come first in a plan; those of stage 0 only prepare others.
    """

    repeats: ClassVar[str] = ""
    stage: ClassVar[int] = 1

    if TYPE_CHECKING:
        kind: str  # the name of its kind; a field of every subclass
        label: str  # the column, and
        layer: LayerRef  # the layer; fields of every subclass that does not override the properties made of them

    suite: str
    profile: str
    device: Literal["cpu", "cuda"] = "cpu"
    threads: Count = 1

    @cached_property
    def id(self) -> str:
        """`<slug>-<hash>`, safe as a file name."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.slug.lower()).strip("-")[:60]
        return f"{slug}-{settings_digest(self.model_dump(mode='json'))}"

    @property
    def slug(self) -> str:
        """The readable part of the id."""
        return f"{self.column}-{self.layer.row}"

    @property
    def column(self) -> str:
        """The label of the suite's column, a data set or a sweep, to which the trial belongs."""
        return self.label

    @property
    def layers_under_test(self) -> tuple[LayerRef, ...]:
        """The layers that the trial runs, one per row of the suite."""
        return (self.layer,)

    @property
    def layers_to_check(self) -> tuple[LayerRef, ...]:
        """The layers that check-layer examines before the trial runs, if they are third-party."""
        return self.layers_under_test

    @property
    def layer_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the events that its layers receive."""
        return ()

    @property
    def layer_batches(self) -> tuple[int, ...]:
        """The sizes of the batches that its layers receive, except incomplete ones."""
        return ()

    @property
    def open_ended(self) -> bool:
        """True if the records of its prerequisites may call for further ones."""
        return False

    @property
    def place(self) -> str:
        """The column with everything that separates places of a table, such as "spatial, 3×32×32, batch 16"."""
        return self.column

    @property
    def position(self) -> tuple[int, ...]:
        """The order of places within a column, such as (3, 32, 32, 16)."""
        return ()

    @property
    def repetition(self) -> int:
        """The value of the setting that `repeats` names, such as the seed; 0 without repetitions."""
        return int(getattr(self, self.repeats)) if self.repeats else 0

    @property
    def repeat(self) -> str:
        """The repetition as text, such as "seed 3"; empty without repetitions."""
        return f"{self.repeats} {self.repetition}" if self.repeats else ""

    @property
    def fields(self) -> dict[str, Any]:
        """The columns of results.csv that identify the trial."""
        return {"dataset": self.column, "layer": self.layer.row}

    @property
    def cases(self) -> list[dict[str, Any]]:
        """The rows of a record without measures: one empty row, or one per layer and operation."""
        return [{}]

    @property
    def data_sets(self) -> tuple[DataRef, ...]:
        """The data sets that the trial reads."""
        return ()

    @property
    def steps(self) -> int:
        """The number of training steps; 0 for a trial that trains nothing."""
        return 0

    @property
    def alone(self) -> bool:
        """True if the trial runs when nothing else does."""
        return kind_of(self.kind).alone

    @property
    def uses_kernels(self) -> bool:
        """True if layers compute on the processor, so that their compiled kernels should be built in advance."""
        return self.device == "cpu" and kind_of(self.kind).computes

    @property
    def rows(self) -> tuple[str, ...]:
        """The labels of the suite's rows that the trial measures."""
        return tuple(layer.row for layer in self.layers_under_test)

    @property
    def cell(self) -> tuple[str, ...]:
        """The place in tables that only one trial of a plan can fill; a trial of several layers fills several."""
        row = self.rows[0] if len(self.rows) == 1 else ""
        return self.kind, self.place, row, self.repeat

    def order(self, rows: Sequence[str], columns: Sequence[str]) -> tuple[int, ...]:
        """Return a sort key: repetitions outermost, then columns, places and rows; trials that run alone last."""
        row = rows.index(self.rows[0]) if len(self.rows) == 1 else 0
        return self.alone, self.stage, self.repetition, columns.index(self.column), *self.position, row

    def selected(self, rows: Container[str], columns: Container[str], seeds: Container[int]) -> bool:
        """Return whether `--only` selects the trial: its column, one of its rows and, if it has one, its seed."""
        seeded = self.repeats != "seed" or self.repetition in seeds
        return seeded and self.column in columns and any(row in rows for row in self.rows)

    def prerequisites(self, records: Mapping[str, Record]) -> tuple[Trial, ...]:
        """Return the trials that need an outcome before this one can run, as far as the records (by id) tell."""
        return ()

    def outdated(self, record: Record, records: Mapping[str, Record]) -> str | None:
        """Return why a record of this trial contradicts those of its prerequisites; None if it does not."""
        return None

    def used(self, record: Record) -> Trial:
        """Return the trial with the settings that its record was made with: the planned ones, or what tuning chose."""
        return self

    def with_checksums(self, checksums: Mapping[DataRef, str | None]) -> Self:
        """Return the same trial on data with these checksums (see `DataRef.arrays`)."""
        return self

    def without_rows(self, rows: Container[str]) -> Self:
        """Return the trial without the layers of these rows if it measures several, otherwise unchanged."""
        return self


def _parse(value: Any) -> Trial:
    """Return a trial of the kind that its settings name."""
    if isinstance(value, Trial):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise ValueError("a trial is a mapping with the key 'kind'")
    try:
        kind = kind_of(value["kind"])
    except UnknownKind as error:
        raise ValueError(str(error)) from error
    return kind.trial.model_validate(value)


AnyTrial = Annotated[SerializeAsAny[Trial], PlainValidator(_parse)]
"""A trial of any registered kind, as a field of a pydantic model."""
