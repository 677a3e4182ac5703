"""Suites that train flows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from harness.core.explain import Problem
from harness.core.settings import Augmentation, Count, DataRef, Flag, Permute, Settings, StatedScalings
from harness.core.third_party import reference
from harness.core.trial import Trial
from harness.kinds.density.problems import (
    accounting_problems,
    average_problems,
    backbone_problems,
    encoding_problems,
    mixer_problems,
    sample_problems,
    scalings,
)
from harness.kinds.density.repetitions import Repetitions, Seeds, drawn, repetition_problems
from harness.kinds.density.rows import BaselineRow, TrainedCell, TrainedRow
from harness.kinds.density.trial import OPTION, DensityTrial
from harness.kinds.density.tuning.planned import tuning_of, tuning_problems
from harness.kinds.runtime.trial import RuntimeTrial
from harness.planning.cells import Cell, Scope, Where
from harness.planning.suite import Suite
from harness.planning.suite_model import AnyRow, Average, ColumnKeys, Label, LayerSettings, ProfileKeys
from harness.timing.settings import TimingSettings

SIZES = ("levels", "steps", "width")
"""The settings of `flow` that a baseline has; the others belong to the backbone."""

ENCODING = ("permute", "augmentation", "preprocessing", "dequantise", "allow_unbounded")
"""Keys of a data set that define how its raw values become a flow's input."""


class TrainedColumn(ColumnKeys):
    """One column of the table: a data set, its encoding, and the settings that it changes.

    Attributes:
        seeds: a number, or a list of seeds; null: the profile's.
        repetitions: in place of seeds (see `harness.kinds.density.repetitions`); null: the profile's.
        permute: seed of a permutation of all entries, or per-seed: one for each seed or repetition; null: none.
        augmentation: of training images.
        preprocessing: scale the range to [-1, 1]; of values without levels, standard (the standard deviation to 1) or
            asinh (for heavy tails, about the median in units of the interquartile range), one for all channels, a list
            with one for each, or a mapping of names of columns, of which others keep scale; of pixels, the logit.
        dequantise: add uniform noise to values on a lattice.
        allow_unbounded: acknowledge that raw values on a lattice admit any density.
    """

    seeds: Seeds | None = None
    repetitions: Repetitions | None = None
    permute: Permute | None = None
    augmentation: Augmentation = "none"
    preprocessing: StatedScalings = "scale"
    dequantise: Flag = True
    allow_unbounded: Flag = False

    def reference(self, label: str, folder: Path | None, root: Path | None = None) -> DataRef:
        """Return the data set as a part of a trial's settings.

        Files that it names are looked for in `folder` first, then in the data root.
        """
        encoding = {key: getattr(self, key) for key in ENCODING}
        from harness.datasets import find_dataset

        dataset = find_dataset(self.data or label, folder)
        options = dataset.located(self.options, folder, root)
        if not isinstance(self.preprocessing, str):
            encoding["preprocessing"] = scalings(self.preprocessing, dataset, options)
        name, source = reference(self.data or label, folder)
        content = {"label": label, "name": name, "source": source, "options": options, **encoding}
        return DataRef.model_validate(content)


class DensityTiming(TimingSettings):
    """The settings of the measurement, and the batch size, as the shapes are those of the data sets.

    Attributes:
        batch: events of a call.
    """

    batch: Count = 64


class TrainedProfile(ProfileKeys):
    """One size of the suite.

    Attributes:
        seeds: a number, or a list of seeds; of each cell whose data set has none.
        repetitions: in place of seeds, each with a training seed, a tuning, a split and a permutation of its own (see
            `harness.kinds.density.repetitions`); null: seeds alone.
        draw: another number draws seeds or repetitions and the tuning anew.
        remark: below the table of likelihoods.
        leave_out_missing: leave out the data sets whose files are missing, with a line for each, rather than refuse to
            run; not those that `--only dataset` names.
        averages: columns of means over other columns, such as a mean over patients.
        timing: of the layers, beside the training; None: none.
    """

    seeds: Seeds = (0,)
    repetitions: Repetitions | None = None
    draw: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0
    remark: str = ""
    leave_out_missing: Flag = False
    averages: Mapping[Label, Average] = Field(default_factory=dict)
    timing: DensityTiming | None = None


class DensitySuite(Suite, kind="density"):
    """A suite that trains every row on every data set with every seed; its rows may be baselines, too."""

    cell_model: ClassVar[type[LayerSettings]] = TrainedCell
    sections: ClassVar[Mapping[str, type[AnyRow]]] = {"layers": TrainedRow, "flows": BaselineRow}
    column_model: ClassVar[type[Settings]] = TrainedColumn
    profile_model: ClassVar[type[ProfileKeys]] = TrainedProfile

    if TYPE_CHECKING:
        flows: Mapping[str, BaselineRow]

    def references(self, scope: Scope) -> dict[str, tuple[DataRef, ...]]:
        """Return the data sets with their encodings, and of each repetition with its split and permutation."""
        columns = scope.data.items()
        places = self.origin.folder, self.origin.data
        entries = {label: column.entry.reference(label, *places) for label, column in columns}
        return {
            label: tuple(entry.model_copy(update=each.data) for each in drawn(scope, label))
            for label, entry in entries.items()
        }

    def expand(self, scope: Scope, common: Mapping[str, Any], data: Mapping[str, Sequence[DataRef]]) -> Iterator[Trial]:
        """Yield the trials in their order, then one per data set that times its layers.

        Repetitions are outermost, each with its candidates first; those that all share come before them.
        """
        trials: list[DensityTrial] = []
        for column, cells in scope.cells.items():
            for each, reads in zip(drawn(scope, column), data[column], strict=True):
                trials += [
                    DensityTrial(
                        **common,
                        data=reads,
                        layer=cell.layer,
                        flow=cell.settings.flow,
                        training=cell.settings.training,
                        seed=each.seed,
                        repetition=each.repetition,
                        tuning=tuning_of(cell, each),
                    )
                    for cell in cells
                ]
        candidates = {candidate.id: candidate for trial in trials for candidate in trial.candidates}
        rows, columns = list(scope.rows), list(scope.columns)
        yield from sorted([*candidates.values(), *trials], key=lambda trial: trial.order(rows, columns))
        timing = scope.profile.timing
        if timing is None:
            return
        from harness.pipeline.models import layer_shapes  # imports torch

        for column_label, cells in scope.cells.items():
            timed = [cell for cell in cells if not cell.layer.baseline]
            for event in timed[0].event_shapes if timed else ():
                yield RuntimeTrial(
                    **common,
                    sweep=column_label,
                    shape=layer_shapes(event, timed[0].settings.flow)[0],
                    batch=timing.batch,
                    layers=tuple(cell.layer for cell in timed),
                    operations=("forward", "inverse"),
                    timing=TimingSettings(**timing.model_dump(exclude={"batch"})),
                )

    def repeats(self, scope: Scope) -> dict[str, tuple[int, ...]]:
        """Return the seeds of a profile and the numbers of its repetitions, those of all its data sets together."""
        every = [each for column in scope.columns for each in drawn(scope, column)]
        seeds = dict.fromkeys(each.seed for each in every if each.repetition is None)
        return {
            "seed": tuple(seeds),
            "repetition": tuple(sorted({each.repetition for each in every if each.repetition is not None})),
        }

    def option_sets(self, cell: Cell) -> list[dict[str, Any]]:
        """Return the options of the layer, then those of its candidates."""
        base = dict(cell.layer.options)
        sets = [base]
        tunings = [tuning_of(cell, each) for each in drawn(cell.scope, cell.column)]
        for changes in (changes for tuning in tunings if tuning is not None for changes in tuning.candidates):
            changed = {path.removeprefix(OPTION): value for path, value in changes if path.startswith(OPTION)}
            sets += [base | changed] if base | changed not in sets else []
        return sets

    def problems(self, scope: Scope) -> Iterator[Problem]:
        """Yield problems with rows, data sets, averages and training."""
        yield from self._baseline_problems(scope)
        yield from mixer_problems(scope)
        yield from backbone_problems(scope)
        for column in scope.data.values():
            yield from encoding_problems(column)
        yield from average_problems(scope)
        yield from sample_problems(scope)
        yield from repetition_problems(scope)
        yield from tuning_problems(scope)
        if not self.origin.examined:
            yield from accounting_problems(scope)

    def _baseline_problems(self, scope: Scope) -> Iterator[Problem]:
        """Yield baselines with the label of a layer's row, and settings of the backbone."""
        for label in self.flows.keys() & self.layers.keys():
            message = f"flows: {label!r} is a row of layers already; label one of the two otherwise"
            yield Where(("flows", label)).says(message, at_key=True)
        for part, place in scope.parts:
            for label, row in part.flows.items():
                for name in sorted(row.flow.model_fields_set - set(SIZES)):
                    message = f"flow.{name}: has no effect on a baseline, which takes {', '.join(SIZES)}; remove it"
                    where = scope.locate((*place, "flows", label, "flow", name))
                    yield where.says(message, at_key=True)
