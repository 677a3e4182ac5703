"""The definition of one trial: frozen, hashable settings, from which its id is derived, and how it is run and judged.

Every kind of trial is one folder below harness/kinds with a subclass of `Trial` in its trial.py; the value of the field
`kind` is the name of the kind. All other code asks a trial and names no kind. Modules beside the class that need torch
are imported when they are asked for (`harness.core.discovery.sibling`):

    run.py      run(trial, root, out, progress, checkpoints) -> Record
    trained.py  load(trial, folder, device) -> the trained model, for `harness.load_flow`; for `harness.verify`
                contradictions(trial, record, folder, root) -> text; None without weights

The suites of a kind are registered in `harness.planning.suite`, its reports in `harness.reporting.report`. This
module does not import torch, so that a plan can be printed without it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import PlainValidator, SerializeAsAny

from harness.core.settings import Count, DataRef, LayerRef, Settings, settings_digest

if TYPE_CHECKING:
    from harness.core.records import Record

IDENTITY = {"suite": "string", "profile": "string", "kind": "string", "dataset": "string", "layer": "string"}
OUTCOME = {"seed": "Int64", "status": "string of a status", "reason": "string", "check": "string"}
ORIGIN = {"device": "string", "id": "string"}
"""Columns of every kind: the first ones, those between settings and measures, and those after the measures."""

SOUND = frozenset({"ok", "unsupported"})
"""The statuses of trials that did not fail."""

TRIALS: dict[str, type[Trial]] = {}
"""Name of a kind -> the class of its trials."""


def trial_class(kind: str) -> type[Trial]:
    """Return the class of the trials of a kind; raise ValueError for an unknown kind."""
    if kind not in TRIALS:
        raise ValueError(f"kind {kind!r} is not registered; the kinds are {', '.join(sorted(TRIALS))}")
    return TRIALS[kind]


def column_types() -> dict[str, str]:
    """Return name -> pandas type of the columns of all kinds."""
    return {name: dtype.partition(" ")[0] for _, cls in sorted(TRIALS.items()) for name, dtype in cls.columns.items()}


class Trial(Settings):
    """One unit of work, run by one process and stored as one record.

    The id is a readable slug and a hash over all settings: a changed setting gives a new trial.

    Attributes:
        columns: name -> type of every column of results.csv, in order: a pandas type, perhaps with bounds, among
            `harness.core.records.TYPES`. A measure of a record that is not among them, or not of its type, is an
            error.
        run_module: name of the module beside the class that runs the trial.
        alone: whether the trial runs when nothing else does, as others beside it would change what it measures.
        computes: whether it runs layers, so that the compiled kernels are loaded.
        deterministic: whether it uses deterministic algorithms where they exist.
        losses: statuses, or "audit failed", with which it counts as ok, beside "ok".
        stage: trials of a lower stage come first in a plan; those of stage 0 only prepare others.
    """

    columns: ClassVar[Mapping[str, str]] = {}
    run_module: ClassVar[str] = "run"
    alone: ClassVar[bool] = False
    computes: ClassVar[bool] = True
    deterministic: ClassVar[bool] = False
    losses: ClassVar[frozenset[str]] = frozenset()
    stage: ClassVar[int] = 1

    if TYPE_CHECKING:
        kind: str  # the name of its kind; a field of every subclass
        label: str  # the column, and
        layer: LayerRef  # the layer; fields of every subclass that does not override the properties made of them

    suite: str
    profile: str
    device: Literal["cpu", "cuda"] = "cpu"
    threads: Count = 1

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "kind" in cls.__annotations__:
            name = cls.model_fields["kind"].default
            if name in TRIALS:
                raise ValueError(f"kind {name!r} is taken by {TRIALS[name].__module__}; give this one another name")
            TRIALS[name] = cls

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
    def repeats(self) -> str:
        """The setting in which repetitions of a measurement differ, such as "seed"; empty without repetitions."""
        return ""

    @property
    def repeat_index(self) -> int:
        """The value of the setting that `repeats` names, such as the seed; 0 without repetitions."""
        return int(getattr(self, self.repeats)) if self.repeats else 0

    @property
    def repeat(self) -> str:
        """The repetition as text, such as "seed 3"; empty without repetitions."""
        return f"{self.repeats} {self.repeat_index}" if self.repeats else ""

    @property
    def round(self) -> int:
        """The number of the repetition of everything to which the trial belongs, with its earlier stages."""
        return 0

    @property
    def fields(self) -> dict[str, Any]:
        """The columns of results.csv that identify the trial."""
        return {"dataset": self.column, "layer": self.layer.row}

    @property
    def identity(self) -> dict[str, Any]:
        """The columns of results.csv that are equal in all rows of the trial, whatever a record says."""
        columns = dict.fromkeys((*IDENTITY, *ORIGIN, "seed"))
        columns |= {name: getattr(self, name) for name in ("suite", "profile", "kind", "device", "id")} | self.fields
        return {name: value for name, value in columns.items() if name not in self.cases[0]}

    @property
    def required(self) -> tuple[str, ...]:
        """The measures that every row with the status ok has."""
        return ()

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
    def rows(self) -> tuple[str, ...]:
        """The labels of the suite's rows that the trial measures."""
        return tuple(layer.row for layer in self.layers_under_test)

    @property
    def cell(self) -> tuple[str, ...]:
        """The place in tables that only one trial of a plan can fill; a trial of several layers fills several."""
        row = self.rows[0] if len(self.rows) == 1 else ""
        return self.kind, self.place, row, self.repeat

    @classmethod
    def run_path(cls) -> str:
        """Return the name of the module that runs the trial."""
        return f"{cls.__module__.rpartition('.')[0]}.{cls.run_module}"

    @classmethod
    def similar(cls, trial: Mapping[str, Any]) -> list[tuple[list[Any], float]]:
        """Return keys for grouping trials by expected duration, most specific first, each with its workload.

        `trial` has the settings of one, as `model_dump(mode="json")` gives them.
        """
        varying = ("suite", "profile", "device", "threads", "layer")
        same = [value for name, value in trial.items() if name not in varying]
        return [([trial["kind"], *same, trial["layer"]["row"]], 1.0), ([trial["kind"]], 1.0)]

    @classmethod
    def fixed_seconds(cls, rows: Sequence[Mapping[str, Any]]) -> float:
        """Return the seconds of a record's rows that do not grow with the workload."""
        return 0.0

    @classmethod
    def headline(cls, rows: Sequence[Mapping[str, Any]]) -> str:
        """Return the main measure of a record's rows as text, for the progress of a run; "" without any."""
        return f"{len(rows)} rows" if len(rows) != 1 else ""

    @classmethod
    def accepts(cls, state: str, unsupported: bool) -> bool:
        """Return whether this status, or "audit failed", counts as ok; `unsupported` does if the suite accepts it."""
        return state == "ok" or state in cls.losses or (state == "unsupported" and unsupported)

    def data_classes(self) -> list[type]:
        """Return the classes of its data sets, whose source can change the result."""
        return []

    def fault(self, record: Record) -> str | None:
        """Return why a record of valid types cannot be one of this trial; None if it can.

        Each of its rows is one of the trial's cases, no two of the same; a trial that is ok has a row for each. A row
        may repeat the identity of the trial, and has no other.
        """
        identity = self.identity
        for row in record.rows:
            for name in row.keys() & identity.keys():
                if row[name] != identity[name]:
                    return f"a row of {name} {row[name]!r:.60}, in a trial of {identity[name]!r:.60}"
            lost = [name for name in self.required if row.get(name) is None]
            if lost and row.get("status", record.status) == "ok":
                return f"a row that is ok, without {lost[0]}"
        stated = {row["status"] for row in record.rows if "status" in row}
        sound = "unsupported" if stated == {"unsupported"} else "ok"
        if stated and (record.status != sound if stated <= SOUND else record.status in SOUND):
            return f"its status is {record.status}, those of its rows are {', '.join(sorted(map(str, stated)))}"
        cases = [tuple(case.items()) for case in self.cases]
        keys = list(self.cases[0])
        rows = [tuple((key, row.get(key)) for key in keys) for row in record.rows]
        strange = next((row for row in rows if row not in cases), None)
        if strange is not None:
            return f"a row for {_case(strange)}, which the trial does not measure"
        if len(rows) != len(set(rows)):
            return "two rows of one case"
        missing = next((case for case in cases if case not in rows), None) if record.status == "ok" else None
        return None if missing is None else f"it is ok, and has no row{' for' * bool(keys)} {_case(missing)}".rstrip()

    def order(self, rows: Sequence[str], columns: Sequence[str]) -> tuple[int, ...]:
        """Return a sort key: repetitions outermost, then columns, places and rows; trials that run alone last."""
        row = rows.index(self.rows[0]) if len(self.rows) == 1 else 0
        column = columns.index(self.column)
        return self.alone, self.round, self.stage, self.repeat_index, column, *self.position, row

    def selected(self, rows: Container[str], columns: Container[str], repeats: Mapping[str, Container[int]]) -> bool:
        """Return whether `--only` selects the trial: its column, one of its rows, and its repetition or seed.

        Args:
            repeats: the selected values of settings such as "seed"; of one that is missing, all.
        """
        repeated = self.repeats not in repeats or self.repeat_index in repeats[self.repeats]
        return repeated and self.column in columns and any(row in rows for row in self.rows)

    def prerequisites(self, records: Mapping[str, Record]) -> tuple[Trial, ...]:
        """Return the trials that need an outcome before this one can run, as far as the records (by id) tell."""
        return ()

    def outdated(self, record: Record, records: Mapping[str, Record]) -> str | None:
        """Return why a record of this trial contradicts those of its prerequisites; None if it does not."""
        return None

    def used(self, record: Record) -> Trial:
        """Return the trial with the settings that its record was made with: the planned ones, or what tuning chose."""
        return self

    @property
    def protocol(self) -> dict[str, Any]:
        """The settings that all repetitions of the trial share, of a kind with repetitions that draw others."""
        return {}

    def without_rows(self, rows: Container[str]) -> Self:
        """Return the trial without the layers of these rows if it measures several, otherwise unchanged."""
        return self


def _case(case: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {value!r:.60}" for name, value in case)


def _parse(value: Any) -> Trial:
    """Return a trial of the kind that its settings name."""
    if isinstance(value, Trial):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise ValueError("a trial is a mapping with the key 'kind'")
    return trial_class(value["kind"]).model_validate(value)


AnyTrial = Annotated[SerializeAsAny[Trial], PlainValidator(_parse)]
"""A trial of any registered kind, as a field of a pydantic model."""
