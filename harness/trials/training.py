"""Training of one flow: Adam with the paper's schedule, the checkpoint chosen on the validation split alone."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.errors import Diverged
from harness.records import finite
from harness.settings import Progress, TrainingSettings
from harness.trials.evaluation import evaluate, generator
from harness.trials.updates import Measures, Updates, smallest_log_det

if TYPE_CHECKING:
    from flows import Glow
    from harness.trials.pipeline import Pipeline

Curves = dict[str, list[float | None]]

REPORT_SECONDS = 0.5  # between two progress reports; a report looks at nothing on the device


@dataclass(frozen=True)
class Fit:
    """What training did; the flow itself holds the chosen weights.

    Attributes:
        curves: "step", "train" (mean loss since the step before) and "validation", in the data's unit; with
            averages "average_log_det", the smallest log|det W| / D of the averaged layers under test, in nats.
        best_step: the step whose weights were kept, the one of the lowest validation value.
        steps_done: fewer than asked for when training stopped early.
        passes: forward and backward passes over a batch; two per step under "separate" averages.
        train_seconds: wall time of the training steps alone; the clock stands still during evaluations.
        stopped_early: whether patience ran out.
    """

    curves: Curves
    best_step: int
    steps_done: int
    passes: int
    train_seconds: float
    stopped_early: bool


def training_batches(pipeline: Pipeline, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless prepared batches (x, log-det) of the training split, a function of the seed alone.

    One random order of all points follows another, and the sequence is cut into batches, so every point is
    used equally often and no remainder is dropped. Each use of a point draws a fresh augmentation, where there
    is one, and fresh dequantisation noise; the order of points and the noise are the same with and without
    augmentation. A batch size beyond the number of points means all points, each once.
    """
    raw = pipeline.raw("train")
    size = min(batch_size, len(raw))
    shuffle = generator(torch.device("cpu"), seed, "order of training points")
    moves = generator(pipeline.device, seed, "augmentation")
    noise = generator(pipeline.device, seed, "training noise")
    waiting = torch.empty(0, dtype=torch.long)
    while True:
        while len(waiting) < size:
            waiting = torch.cat([waiting, torch.randperm(len(raw), generator=shuffle)])
        chosen, waiting = waiting[:size], waiting[size:]
        yield pipeline.prepare(pipeline.augment(raw[chosen], moves), noise)


def fit(flow: Glow, pipeline: Pipeline, settings: TrainingSettings, seed: int, progress: Progress) -> Fit:
    """Maximise the likelihood of the training split; leave in the flow the weights that validation chose.

    The loss is the negative log-likelihood in nats per dimension. ActNorm is initialised on the first batch,
    as training sees it. What is validated and kept is the flow of `Updates`, averages included where the
    settings ask for them. Between evaluations nothing waits for the device.

    Args:
        flow: built, on the pipeline's device; changed in place.
        pipeline: only its splits "train" and "validation" are read.
        settings: see `TrainingSettings`.
        seed: decides the order of the points and all noise.
        progress: told the fraction done and a short text.

    Raises:
        Diverged: a loss or a validation likelihood was not finite, or an averaged layer became singular;
            carries the curves so far.
    """
    batches = training_batches(pipeline, settings.batch_size, seed)
    first = next(batches)
    with torch.no_grad():
        flow.initialise(first[0])
    updates = Updates(flow, settings, len(pipeline.raw("train")))
    device = first[0].device
    losses = torch.zeros(settings.evaluate_every, device=device, dtype=torch.float64)
    curves: Curves = {"step": [], "train": [], "validation": []}
    best, best_step, best_weights, waited = math.inf, 0, flow.state_dict(), 0
    clock = _Clock(device)
    reported = time.monotonic()
    stopped_early = False

    for step, (x, log_det) in enumerate(itertools.chain([first], batches), start=1):
        measures = updates.step(partial(_measures, pipeline=pipeline, x=x, log_det=log_det), step)
        since = (step - 1) % settings.evaluate_every
        losses[since] = measures[pipeline.unit].detach().mean()

        if since + 1 < settings.evaluate_every and step < settings.steps:
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                progress(step / settings.steps, f"step {step}/{settings.steps}")
            continue

        clock.pause()
        curves["step"].append(step)
        curves["train"].append(None)
        curves["validation"].append(None)
        curves["train"][-1] = _mean_loss(losses[: since + 1].tolist(), step, curves)
        if settings.ema != "none":
            _watch_average(flow, step, curves)
        value = curves["validation"][-1] = _validate(flow, pipeline, settings, seed, step, curves)
        progress(step / settings.steps, f"step {step}/{settings.steps} val {value:.3f}")
        waited += 1
        if value < best:
            best, best_step, best_weights, waited = value, step, deepcopy(flow.state_dict()), 0
        stopped_early = settings.patience is not None and waited >= settings.patience and step < settings.steps
        if step == settings.steps or stopped_early:
            break
        clock.resume()

    flow.load_state_dict(best_weights)
    return Fit(curves, best_step, step, step * updates.passes, clock.seconds, stopped_early)


def _measures(flow: Glow, pipeline: Pipeline, x: Tensor, log_det: Tensor) -> Measures:
    return pipeline.measures(flow.log_prob(x), log_det)


def _watch_average(flow: Glow, step: int, curves: Curves) -> None:
    """Enter the smallest log|det| of the averaged layers: an average of invertible matrices can be singular."""
    smallest = smallest_log_det(flow)
    if smallest is None:
        return
    path, value = smallest
    curves.setdefault("average_log_det", []).append(finite(value))
    if not math.isfinite(value):
        raise Diverged(f"the averaged weights of {path} are singular at step {step}: log|det| is {value}", curves)


def _mean_loss(losses: list[float], step: int, curves: Curves) -> float:
    """The mean of the losses up to `step`; Diverged names the first that is not finite."""
    for number, value in enumerate(losses, start=step - len(losses) + 1):
        if not math.isfinite(value):
            raise Diverged(f"training loss is {value} at step {number}", curves)
    return math.fsum(losses) / len(losses)


def _validate(
    flow: Glow, pipeline: Pipeline, settings: TrainingSettings, seed: int, step: int, curves: Curves
) -> float:
    """The validation split's value in the data's unit, under the same noise at every step."""
    result = evaluate(flow, pipeline, "validation", 1, settings.evaluation_batch, seed)
    if result.non_finite:
        raise Diverged(
            f"validation likelihood is not finite at step {step} for {result.non_finite} "
            f"of {result.values.numel()} points",
            curves,
        )
    return result.bits_per_dim if pipeline.unit == "bits_per_dim" else result.nats_per_dim


class _Clock:
    """Seconds of training; waits for the device before it stops or starts."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds = 0.0
        self.resume()

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def resume(self) -> None:
        self._synchronise()
        self.started = time.perf_counter()

    def pause(self) -> None:
        self._synchronise()
        self.seconds += time.perf_counter() - self.started
