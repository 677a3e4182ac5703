"""The settings of trials that train a flow."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, ClassVar, Literal, Self

from harness.core.records import AUDIT_FAILED, Record
from harness.core.settings import (
    Count,
    DataRef,
    Flag,
    FlowSettings,
    LayerRef,
    Options,
    Settings,
    TrainingSettings,
)
from harness.core.trial import IDENTITY, ORIGIN, OUTCOME, Trial
from harness.kinds.density.result import CANDIDATE_MEASURES, MEASURES, result_fault, steps_fault
from harness.kinds.density.tuning.strategy import strategy, validation

REPETITION = {"repetition": "Int64"}


def as_text(values: Mapping[str, Any]) -> str:
    """Return options or settings as JSON, their names in order."""
    return json.dumps(values, sort_keys=True)


OPTION = "layer.options."
"""The beginning of the path of a layer's option."""


class Tuning(Settings):
    """The candidates among which validation chooses the settings of a trial.

    Attributes:
        seed: of the training of every candidate; the seeds of the trials that use the choice are others.
        steps: training steps of a candidate that runs to the end; None: as many as those trials have.
        budget: None, which ids contain.
        candidates: setting -> value, such as "training.learning_rate" or "layer.options.levels", by number.
        strategy: by which they are drawn and run.
        repetition: the number of the repetition to which the candidates belong; None: all share them.
    """

    omitted: ClassVar[tuple[str, ...]] = ("strategy", "repetition")

    seed: int
    steps: Count | None = None
    budget: None = None
    candidates: tuple[Options, ...]
    strategy: str = "sobol"
    repetition: int | None = None


class FlowTrial(Trial):
    """Train one flow on one data set with one seed, in one repetition; without repetitions, seeds alone differ."""

    deterministic: ClassVar[bool] = True

    data: DataRef
    layer: LayerRef
    flow: FlowSettings
    training: TrainingSettings
    seed: int
    repetition: int | None = None

    @property
    def column(self) -> str:
        """The label of the data set."""
        return self.data.label

    @property
    def fields(self) -> dict[str, Any]:
        """Data set, layer, repetition and seed."""
        return super().fields | {"repetition": self.repetition, "seed": self.seed}

    @property
    def audited(self) -> bool:
        """True if the trained flow is evaluated and audited; a training that only decides what else runs is not."""
        return True

    @property
    def round(self) -> int:
        """The repetition; 0 without repetitions, and for what all share."""
        return self.repetition or 0

    @property
    def data_sets(self) -> tuple[DataRef, ...]:
        """The data set."""
        return (self.data,)

    @property
    def steps(self) -> int:
        """The training steps."""
        return self.training.steps

    @property
    def layer_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the events of its layers."""
        from harness.datasets import find_dataset
        from harness.pipeline.models import layer_shapes  # imports torch

        return tuple(layer_shapes(find_dataset(self.data.name).event_shape(dict(self.data.options)), self.flow))

    @property
    def layer_batches(self) -> tuple[int, ...]:
        """The batch of training and that of evaluations."""
        return self.training.batch_size, self.training.evaluation_batch

    @classmethod
    def headline(cls, rows: Sequence[Mapping[str, Any]]) -> str:
        """Return the likelihood in its unit: of the test split, else of the validation split."""
        (row,) = rows
        unit = str(row.get("unit"))
        for name, text in ((unit, ""), ("validation", "validation ")):
            if row.get(name) is not None:
                return f"{text}{row[name]:.3f} {unit.replace('_per_dim', '/dim')}"
        return ""

    def data_classes(self) -> list[type]:
        """Return the class of the data set."""
        from harness.datasets import find_dataset

        return [type(find_dataset(self.data.name))]

    def fault(self, record: Record) -> str | None:
        """Return also how the measures of a record contradict each other, or the settings that it was made with."""
        wrong = super().fault(record) or result_fault(record, self.audited)
        for row in record.rows if wrong is None else ():
            reported = row["unit"] if self.stage else "validation"
            if row.get("audit") == "passed" and row.get(reported) is None:
                return f"its audit passed without {reported}"
            made = self.settled_by(row)
            options = as_text(dict(made.layer.options))
            for name, value in (("learning_rate", made.training.learning_rate), ("options", options)):
                if row.get(name) not in (None, value):
                    return f"{name} {row[name]!r:.60}, of settings with {value!r:.60}"
            wrong = wrong or steps_fault(record, row, made.training.steps)
        return wrong

    def settled_by(self, row: Mapping[str, Any]) -> FlowTrial:
        """Return the trial with the settings with which a row was made."""
        return self

    @classmethod
    def similar(cls, trial: Mapping[str, Any]) -> list[tuple[list[Any], float]]:
        """Return the settings that no repetition draws; flow and layer; flow: the last two scale with the examples."""
        examples = trial["training"]["steps"] * trial["training"]["batch_size"]
        column = ["density", trial["data"]["label"], trial["flow"]]
        drawn = ("split", "keep_test", "permute", "checksum")
        data = {name: value for name, value in trial["data"].items() if name not in drawn}
        return [
            ([*column, data, trial["layer"], trial["training"]], 1.0),
            ([*column, "row", trial["layer"]["row"]], examples),
            ([*column, "any row"], examples),
        ]

    @classmethod
    def fixed_seconds(cls, rows: Sequence[Mapping[str, Any]]) -> float:
        """Return the seconds of the audit, which depend on the flow and the events alone."""
        return sum(row.get("audit_seconds") or 0.0 for row in rows)

    def _with(self, **changes: Any) -> Self:
        # Not a copy, which would keep the cached id.
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | changes)


class DensityTrial(FlowTrial):
    """Train one flow, evaluate it on the test split, audit the likelihood.

    With `tuning`, the changes of the candidate that validation chooses replace settings of layer and training.
    As the id covers all candidates and not the choice, a plan is complete before any of them has run.
    """

    columns: ClassVar[Mapping[str, str]] = IDENTITY | REPETITION | OUTCOME | MEASURES | ORIGIN
    omitted: ClassVar[tuple[str, ...]] = ("tuning", "repetition")

    kind: Literal["density"] = "density"
    tuning: Tuning | None = None

    @property
    def repeats(self) -> str:
        """The repetition, or the seed."""
        return "seed" if self.repetition is None else "repetition"

    @property
    def protocol(self) -> dict[str, Any]:
        """The backbone, the training, the options of layer and data, and the extent of the tuning."""
        settings = self.model_dump(mode="json", include={"layer", "flow", "training"})
        settings["data"] = {"name": self.data.name, "options": dict(self.data.options)}
        if self.tuning is not None:
            extent = {"candidates": len(self.tuning.candidates), "steps": self.tuning.steps}
            settings["tuning"] = extent | {"strategy": self.tuning.strategy}
        return settings

    @property
    def slug(self) -> str:
        """The readable part of the id: data set, row, and repetition or seed."""
        return f"{self.data.label}-{self.layer.row}-{self.repeats[0]}{self.repeat_index}"

    @property
    def layers_to_check(self) -> tuple[LayerRef, ...]:
        """The layer; none under tuning, as the chosen options were checked before their candidate ran."""
        return super().layers_to_check if self.tuning is None else ()

    @property
    def open_ended(self) -> bool:
        """True under a strategy that ends some candidates early."""
        return len(self._rungs) > 1

    @property
    def candidates(self) -> tuple[CandidateTrial, ...]:
        """The candidates on all rungs, the same for every seed, or those of the repetition; none without tuning."""
        return tuple(candidate for candidates in self._rungs for candidate in candidates)

    @cached_property
    def _rungs(self) -> tuple[tuple[CandidateTrial, ...], ...]:
        """The candidates of each rung, by number."""
        if self.tuning is None:
            return ()
        return _rungs(self.model_copy(update={"seed": self.tuning.seed, "repetition": self.tuning.repetition}))

    def settled(self, changes: Mapping[str, Any]) -> DensityTrial:
        """Return the trial without tuning and with changed settings: path -> value, as in `Tuning.candidates`."""
        values: dict[str, dict[str, Any]] = {
            "layer.options": dict(self.layer.options),
            "training": dict(vars(self.training)),
            "flow": dict(vars(self.flow)),
        }
        for path, value in changes.items():
            section, _, name = path.rpartition(".")
            values[section][name] = value
        layer = self.layer.model_copy(update={"options": tuple(sorted(values["layer.options"].items()))})
        settings = {"training": TrainingSettings(**values["training"]), "flow": FlowSettings(**values["flow"])}
        return self._with(tuning=None, layer=layer, **settings)

    def settled_by(self, row: Mapping[str, Any]) -> DensityTrial:
        """Return also the changes that the tuning chose."""
        return self.settled({} if row.get("chosen") is None else json.loads(row["chosen"]))

    def prerequisites(self, records: Mapping[str, Record]) -> tuple[CandidateTrial, ...]:
        """Return the candidates that run, as far as the records tell."""
        return () if self.tuning is None else tuple(strategy(self.tuning.strategy).due(self._rungs, records))

    def choice(self, records: Mapping[str, Record]) -> int | None:
        """Return the number of the candidate of the lowest validation value; None if no candidate has one.

        A candidate that ended early, diverged, failed its audit or failed otherwise has none.
        """
        values = {}
        for candidate in self.prerequisites(records):
            value = None if candidate.short else validation(records.get(candidate.id))
            if value is not None:
                values[candidate.candidate] = value
        return min(values, key=lambda number: values[number], default=None)

    def fault(self, record: Record) -> str | None:
        """Return also that a row names a candidate, or a number of them, which the tuning does not have."""
        candidates = () if self.tuning is None else self.tuning.candidates
        for row in record.rows:
            number, count, chosen = (row.get(name) for name in ("candidate", "candidates", "chosen"))
            changes = candidates[number] if number is not None and number < len(candidates) else None
            text = None if changes is None else as_text(dict(changes))
            if chosen != text or (number is not None and changes is None):
                return f"candidate {number}, chosen {chosen!r:.100}, is none of its tuning"
            if (count or 0) > len(candidates):
                return f"{count} candidates, of a tuning of {len(candidates)}"
        return super().fault(record)

    def used(self, record: Record) -> DensityTrial:
        """See `Trial.used`."""
        chosen = record.rows[0].get("chosen") if record.rows else None
        return self if chosen is None else self.settled(json.loads(chosen))

    def outdated(self, record: Record, records: Mapping[str, Record]) -> str | None:
        """Return that the tuning now chooses another candidate than the record has."""
        if self.tuning is None or not record.rows or any(c.id not in records for c in self.prerequisites(records)):
            return None
        before, now = record.rows[0].get("candidate"), self.choice(records)
        return None if before == now else f"its tuning chose candidate {before} and now chooses {now}"


class CandidateTrial(FlowTrial):
    """Train one flow with one candidate of its tuning, evaluate it on the validation split and audit it in part.

    A short one has the first part of the steps, after which the tuning decides whether the candidate ends early. It is
    not audited, which would take most of its time: a candidate is audited when it has trained for all steps.
    """

    columns: ClassVar[Mapping[str, str]] = (
        IDENTITY | {"candidate": "Int64 >= 0"} | REPETITION | OUTCOME | CANDIDATE_MEASURES | ORIGIN
    )
    run_module: ClassVar[str] = "candidate"
    losses: ClassVar[frozenset[str]] = frozenset({"diverged", "unsupported", AUDIT_FAILED})
    stage: ClassVar[int] = 0
    omitted: ClassVar[tuple[str, ...]] = ("short", "repetition")

    kind: Literal["tuning"] = "tuning"
    candidate: int
    short: Flag = False

    @property
    def audited(self) -> bool:
        """True but for a short one: whether it may be chosen is decided when it has run to its end."""
        return not self.short

    @property
    def repeats(self) -> str:
        """The candidate."""
        return "candidate"

    @property
    def repeat(self) -> str:
        """The candidate, the repetition to which it belongs, and the steps of a short one."""
        text = super().repeat if self.repetition is None else f"repetition {self.repetition}, {super().repeat}"
        return f"{text}, first {self.steps} step{'s' * (self.steps != 1)}" if self.short else text

    @property
    def slug(self) -> str:
        """The readable part of the id: data set, row, the repetition if there is one, and candidate."""
        repetition = "" if self.repetition is None else f"r{self.repetition}-"
        return f"{self.data.label}-{self.layer.row}-{repetition}c{self.candidate}{'-short' * self.short}"

    def order(self, rows: Sequence[str], columns: Sequence[str]) -> tuple[int, ...]:
        """Return a sort key: short candidates first."""
        alone, round, stage, *rest = super().order(rows, columns)
        return alone, round, stage, not self.short, *rest

    def selected(self, rows: Container[str], columns: Container[str], repeats: Mapping[str, Container[int]]) -> bool:
        """Return also whether the repetition is selected to which the candidate belongs."""
        here = self.repetition is None or self.repetition in repeats.get("repetition", (self.repetition,))
        return here and super().selected(rows, columns, repeats)

    @property
    def fields(self) -> dict[str, Any]:
        """Data set, layer, candidate, repetition and seed."""
        return super().fields | {"candidate": self.candidate}


@cache  # a plan asks for them at every seed
def _rungs(trial: DensityTrial) -> tuple[tuple[CandidateTrial, ...], ...]:
    """Return the candidates of each rung of a trial with the seed of its tuning."""
    assert trial.tuning is not None
    steps = trial.tuning.steps or trial.training.steps
    rungs = []
    for share in strategy(trial.tuning.strategy).rungs:
        candidates = []
        for number, changes in enumerate(trial.tuning.candidates):
            values = vars(trial.settled(dict(changes))) | {"kind": "tuning", "candidate": number, "short": share < 1}
            update = {"steps": math.ceil(steps * share), "samples": None}
            values["training"] = values["training"].model_copy(update=update)
            candidates.append(CandidateTrial(**{name: values[name] for name in CandidateTrial.model_fields}))
        rungs.append(tuple(candidates))
    return tuple(rungs)
