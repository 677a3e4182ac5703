"""Estimate the cost of a trial that trains a flow: time a few of its training steps and evaluations, and add up."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from harness.audit.events import MOST_EVENTS, SECONDS, SMALL_BATCH, Events
from harness.core.errors import Diverged
from harness.core.records import Record, blank_record
from harness.core.settings import Progress
from harness.evaluation.evaluation import evaluate
from harness.kinds.density.run import built, load_splits, training_callbacks
from harness.kinds.density.trial import DensityTrial, FlowTrial
from harness.pipeline.pipeline import Pipeline
from harness.training.training import fit

if TYPE_CHECKING:
    from flows import Flow
    from harness.training.checkpoints import Checkpoints

FIRST_STEPS = 2  # the first of them also initialises, and is not counted
MOST_STEPS = 30
STEP_SECONDS = 4.0  # of further steps, as far as `MOST_STEPS` allow
FEW_EVENTS = 64
EVALUATION_SECONDS = 10.0  # of training on as many events as are evaluated and compared, at least `SMALL_BATCH`


@dataclass(frozen=True)
class TrainingCost:
    """Seconds of the parts of a trial.

    Attributes:
        setup: to load the data and build the flow.
        step: of a training step, the median of several.
        example: to evaluate the likelihood of one example.
        batches, round_trip: of the two comparisons of the audit, for one event.
        validation, test: number of examples of the splits.
    """

    setup: float
    step: float
    example: float
    batches: float
    round_trip: float
    validation: int
    test: int

    def seconds(self, trial: FlowTrial) -> float:
        """Return the duration of a trial that trains to its last step, without samples for a comparison of images."""
        training = trial.training
        validations = math.ceil(training.steps / training.evaluate_every)
        final, held_out = (training.draws, self.test) if isinstance(trial, DensityTrial) else (1, self.validation)
        audited = min(held_out, MOST_EVENTS)
        parts = (
            self.setup,
            training.steps * self.step,
            (validations * self.validation + final * held_out) * self.example,
            min(SECONDS, audited * self.batches),
            min(SECONDS, audited * self.round_trip),
        )
        return sum(parts)


def run(
    trial: FlowTrial, root: Path | None, out: Path, progress: Progress, checkpoints: Checkpoints | None = None
) -> Record:
    """Return a record without measures, whose curves are the fields of `TrainingCost`, each of one value.

    Under tuning the settings are those of the trial before the choice. The record has the status with which the trial
    itself would end in its first steps.
    """
    record = blank_record(trial, "ok", None)
    settled = trial.settled({}) if isinstance(trial, DensityTrial) else trial
    begin = time.perf_counter()
    splits = load_splits(settled, root)
    batch = settled.training.evaluation_batch
    few = replace(splits, validation=splits.validation[:SMALL_BATCH], test=splits.test[:SMALL_BATCH])
    model = built(settled, few, record)
    if model is None:
        return record
    pipeline, flow = model
    setup = time.perf_counter() - begin
    progress(0.1, "training steps")
    try:
        step = _step_seconds(flow, pipeline, settled, progress)
    except Diverged as error:
        record.status, record.reason = "diverged", str(error)
        return record
    progress(0.8, "evaluation")
    count = max(SMALL_BATCH, int(EVALUATION_SECONDS / step * settled.training.batch_size))
    few = replace(few, validation=splits.validation[: min(FEW_EVENTS, count)], test=splits.test[: min(batch, count)])
    pipeline = Pipeline(few, settled.data, device=pipeline.device, seed=settled.seed)
    begin = time.perf_counter()
    evaluate(flow, pipeline, "test", 1, batch, settled.seed)
    example = (time.perf_counter() - begin) / len(few.test)
    events = Events(pipeline, evaluate(flow, pipeline, "validation", 1, batch, settled.seed))
    begin = time.perf_counter()
    events.compare_batches(flow)
    middle = time.perf_counter()
    events.round_trips(flow)
    end = time.perf_counter()
    cost = TrainingCost(
        setup,
        step,
        example,
        batches=(middle - begin) / len(few.validation),
        round_trip=(end - middle) / len(few.validation),
        validation=len(splits.validation),
        test=len(splits.test),
    )
    record.curves = {name: [value] for name, value in asdict(cost).items()}
    return record


def _step_seconds(flow: Flow, pipeline: Pipeline, trial: FlowTrial, progress: Progress) -> float:
    """Return the median duration of a training step."""
    changes = {"steps": FIRST_STEPS, "evaluate_every": 1, "patience": None}
    training = trial.training.model_copy(update=changes)

    def timed(steps: int) -> list[float]:
        settings = training.model_copy(update={"steps": steps})
        callbacks = training_callbacks(settings, pipeline)
        fitted = fit(flow, pipeline, settings, trial.seed, progress, None, callbacks)
        after = [seconds for seconds in fitted.curves["seconds"] if seconds is not None]
        return [end - begin for begin, end in pairwise(after)]

    first = timed(FIRST_STEPS)
    steps = min(MOST_STEPS, int(STEP_SECONDS / first[0]))
    return statistics.median(timed(steps) if steps > FIRST_STEPS else first)


def seconds(trial: FlowTrial, record: Record) -> float:
    """Return the estimated duration of a trial, from the record of a probe of the same layer on the same data."""
    values = {name: values[0] for name, values in record.curves.items() if name in TrainingCost.__annotations__}
    return TrainingCost(**values).seconds(trial)  # type: ignore[arg-type]
