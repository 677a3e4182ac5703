"""Training of one flow: Adam with the paper's schedule, the checkpoint chosen on the validation split alone."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from flows import Density
from harness.core.errors import Diverged
from harness.core.records import finite
from harness.core.settings import Progress, TrainingSettings
from harness.core.texts import bounded
from harness.evaluation.evaluation import evaluate, generator, has_estimates
from harness.training.updates import Measures, Updates, smallest_log_det
from layers import count_entries

if TYPE_CHECKING:
    from flows import Flow
    from harness.pipeline.pipeline import Pipeline
    from harness.training.checkpoints import Checkpoints

Curves = dict[str, list[float | None]]

REPORT_SECONDS = 0.5  # between two progress reports; a report reads nothing from the device


@dataclass
class Fit:
    """A training: its outcome, and its progress besides the state of the flow, its updates and the batches.

    Attributes:
        losses: of the steps since the last evaluation, in the data's unit.
        best_weights: those of the flow at `best_step`; empty once the flow has them.
        curves: "step", "train" (mean loss since the previous evaluation) and "validation", in the data's unit, and
            "seconds", `train_seconds` up to that step; with averages "average_log_det", the smallest log|det W| / D of
            the averaged layers under test, in nats; and those of the callbacks.
        best: the lowest validation value.
        best_likelihood: the validation likelihood of the same weights, which `best` is unless a callback replaces it.
        best_step: the step whose weights are kept.
        waited: number of evaluations since then.
        steps_done: number of steps, fewer than requested after early stopping.
        passes: forward and backward passes over a batch; two per step under "separate" averages.
        train_seconds: wall time of the training steps alone; the clock stops during evaluations and checkpoints.
        stopped_early: whether patience ran out.
        parameters: how many real numbers the optimiser received.
        replaced: names of parameters that were replaced, frozen or thawed during the training.
    """

    losses: Tensor
    best_weights: dict[str, Tensor]
    curves: Curves = field(default_factory=lambda: {"step": [], "train": [], "validation": [], "seconds": []})
    best: float = math.inf
    best_likelihood: float = math.inf
    best_step: int = 0
    waited: int = 0
    steps_done: int = 0
    passes: int = 0
    train_seconds: float = 0.0
    stopped_early: bool = False
    parameters: int = 0
    replaced: list[str] = field(default_factory=list)

    def faults(self, counted: int) -> list[str]:
        """Return why the trained parameters are not those that were counted when the flow was built."""
        faults = []
        if self.parameters != counted:
            faults.append(
                f"{counted:,} parameters of the flow required a gradient when it was built, and Adam received "
                f"{self.parameters:,}: initialise() or train() changes requires_grad"
            )
        if self.replaced:
            names = bounded(", ".join(self.replaced))
            faults.append(f"parameters replaced, frozen or thawed in training, which Adam does not follow: {names}")
        return faults

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them; raise ValueError if `state` has others."""
        if state.keys() != vars(self).keys():
            raise ValueError(f"it holds {', '.join(state)} of a training")
        vars(self).update(state | {"losses": state["losses"].to(self.losses)})


class Callback:
    """Follow a training; a subclass overrides what it needs. Its state is a part of every checkpoint."""

    def start(self, flow: Flow) -> None:
        """Begin with the flow that is validated, initialised on data; a checkpoint is restored after this."""

    def objective(self, flow: Flow, log_prob: Tensor) -> Tensor:
        """Return the values (N,), in nats, that a step raises in place of log p(x); differentiable."""
        return log_prob

    def on_step(self) -> None:
        """Follow a step of the optimiser."""

    def on_validation(self, flow: Flow, value: float, curves: Curves) -> float:
        """Add to the curves, and return the value that selects weights in place of the negative log-likelihood.

        Args:
            flow: in eval().
            value: of the validation split, in the data's unit, lower is better; if it is not finite, training ends.
            curves: those of `Fit`, with the current step.
        """
        return value

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed training needs."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore that state."""


class TrainingBatches:
    """Endless prepared batches (x, log-det) of the training split, a function of the seed alone.

    One random order of all examples follows another, and the sequence is cut into batches, so every example is used
    equally often and no remainder is dropped. Each use of an example draws a fresh augmentation, if any, and fresh
    dequantisation noise; the order and the noise are the same with and without augmentation. A batch size beyond the
    number of examples means all examples, each once.
    """

    def __init__(self, pipeline: Pipeline, batch_size: int, seed: int) -> None:
        self._pipeline = pipeline
        self._raw = pipeline.raw("train")
        self._size = min(batch_size, len(self._raw))
        self.generators = {
            "order": generator(torch.device("cpu"), seed, "order of training points"),
            "augmentation": generator(pipeline.device, seed, "augmentation"),
            "noise": generator(pipeline.device, seed, "training noise"),
            "estimates": generator(torch.device("cpu"), seed, "training estimates"),  # of log-dets, for the flow
        }
        self._waiting = torch.empty(0, dtype=torch.long)

    def __iter__(self) -> TrainingBatches:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        while len(self._waiting) < self._size:
            order = torch.randperm(len(self._raw), generator=self.generators["order"])
            self._waiting = torch.cat([self._waiting, order])
        chosen, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
        moved = self._pipeline.augment(self._raw[chosen], self.generators["augmentation"])
        return self._pipeline.prepare(moved, self.generators["noise"])

    def state_dict(self) -> dict[str, Any]:
        """Return the generators, and the rest of the current order of examples."""
        states = {name: drawn.get_state() for name, drawn in self.generators.items()}
        return {"generators": states, "waiting": self._waiting.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the generators and the order."""
        for name, drawn in self.generators.items():
            drawn.set_state(state["generators"][name])
        self._waiting = state["waiting"]


def fit(
    flow: Flow,
    pipeline: Pipeline,
    settings: TrainingSettings,
    seed: int,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
    callbacks: Sequence[Callback] = (),
) -> Fit:
    """Maximise the likelihood of the training split; leave in the flow, in eval(), the weights that validation chose.

    The loss is the negative log-likelihood in nats per dimension. The flow is initialised on the first training batch.
    The flow of `Updates` is validated and kept, averages included if the settings request them. Between evaluations
    nothing waits for the device, except checkpoints. On the CPU, training that resumes from a checkpoint gives the same
    bits as one that was never interrupted. A density that is no flow is fitted at once, as one step.

    Args:
        flow: built, on the pipeline's device; changed in place.
        pipeline: only its splits "train" and "validation" are read.
        seed: determines the order of the examples and all noise.
        progress: callback for the completed fraction and a short text.
        checkpoints: checkpoints to resume from and to write; None: start from the beginning, and write none.
        callbacks: each of another class; called in this order.

    Raises:
        Diverged: a loss or a validation likelihood was not finite, or an averaged layer became singular;
            carries the curves so far.
    """
    if isinstance(flow, Density):
        return _fit_at_once(flow, pipeline, settings, seed)
    batches = TrainingBatches(pipeline, settings.batch_size, seed)
    first = next(batches)
    with torch.no_grad():
        flow.initialise(first[0])
    flow.train()
    drawn = batches.generators["estimates"] if has_estimates(flow) else None
    updates = Updates(flow, settings, len(pipeline.raw("train")))
    device = first[0].device
    losses = torch.zeros(settings.evaluate_every, device=device, dtype=torch.float64)
    training = Fit(losses, best_weights=flow.state_dict())
    parts: dict[str, Any] = {"flow": flow, "updates": updates, "batches": batches, "training": training}
    for callback in callbacks:
        callback.start(flow)
        parts[type(callback).__name__] = callback
    if checkpoints is not None:
        checkpoints.restore(parts)
    reported = time.monotonic()

    def measure(model: Flow, x: Tensor, log_det: Tensor) -> Measures:
        log_prob = model.log_prob(x) if drawn is None else model.log_prob(x, drawn)
        for callback in callbacks:
            log_prob = callback.objective(model, log_prob)
        return pipeline.measures(log_prob, log_det)

    started = _now(device)
    while training.steps_done < settings.steps and not training.stopped_early:
        training.steps_done = step = training.steps_done + 1
        training.passes += updates.passes
        x, log_det = first if step == 1 else next(batches)
        measures = updates.step(partial(measure, x=x, log_det=log_det), step)
        for callback in callbacks:
            callback.on_step()
        training.losses[(step - 1) % settings.evaluate_every] = measures[pipeline.unit].detach().mean()
        evaluates = step % settings.evaluate_every == 0 or step == settings.steps
        saves = checkpoints is not None and checkpoints.due()
        if evaluates or saves:
            training.train_seconds += _now(device) - started
            if evaluates:
                flow.eval()  # a layer may apply a different map there
                value = _evaluate(flow, pipeline, settings, seed, training, callbacks)
                flow.train()
                progress(step / settings.steps, f"step {step}/{settings.steps} val {value:.3f}")
            if checkpoints is not None and saves:
                checkpoints.save(step, parts)
            started = _now(device)
        elif time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            progress(step / settings.steps, f"step {step}/{settings.steps}")
    if checkpoints is not None and checkpoints.lasting:
        checkpoints.save(training.steps_done, parts)
    training.parameters, training.replaced = updates.parameters, updates.replaced()
    flow.load_state_dict(training.best_weights)
    flow.eval()
    training.best_weights = {}
    return training


def _fit_at_once(flow: Density, pipeline: Pipeline, settings: TrainingSettings, seed: int) -> Fit:
    """Fit a density to the whole training split, with one draw of the noise."""
    noise = generator(pipeline.device, seed, "training noise")
    (train, log_det), (validation, _) = (pipeline.prepare(pipeline.raw(s)[:], noise) for s in ("train", "validation"))
    started = _now(pipeline.device)
    flow.fit(train, validation)
    seconds = _now(pipeline.device) - started
    with torch.no_grad():
        loss = pipeline.measures(flow.log_prob(train), log_det)[pipeline.unit].double().mean()
    training = Fit(loss[None], best_weights={}, steps_done=1, passes=1, train_seconds=seconds)
    _evaluate(flow.eval(), pipeline, settings, seed, training, ())
    training.best_weights, training.stopped_early = {}, True
    training.parameters = count_entries(flow.parameters())
    return training


def _now(device: torch.device) -> float:
    """Return the time once the device has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _evaluate(
    flow: Flow,
    pipeline: Pipeline,
    settings: TrainingSettings,
    seed: int,
    training: Fit,
    callbacks: Sequence[Callback],
) -> float:
    """Enter the losses and the validation value into the curves; keep the weights if they are the best so far."""
    step, curves = training.steps_done, training.curves
    curves["seconds"].append(training.train_seconds)
    curves["step"].append(step)
    curves["train"].append(None)
    curves["validation"].append(None)
    losses = training.losses[: (step - 1) % settings.evaluate_every + 1].tolist()
    for number, loss in enumerate(losses, start=step - len(losses) + 1):
        if not math.isfinite(loss):
            raise Diverged(f"training loss is {loss} at step {number}", curves)
    curves["train"][-1] = math.fsum(losses) / len(losses)
    if settings.ema != "none":
        _check_averages(flow, step, curves)
    result = evaluate(flow, pipeline, "validation", 1, settings.evaluation_batch, seed, compare=False)
    value = likelihood = result.bits_per_dim if pipeline.unit == "bits_per_dim" else result.nats_per_dim
    for callback in callbacks:
        value = callback.on_validation(flow, value, curves)
    if result.non_finite:
        raise Diverged(
            f"validation likelihood is not finite at step {step} for {result.non_finite} "
            f"of {result.values.numel()} points",
            curves,
        )
    curves["validation"][-1] = value
    training.waited += 1
    if value < training.best:
        training.best, training.best_likelihood, training.best_step, training.waited = value, likelihood, step, 0
        training.best_weights = deepcopy(flow.state_dict())
    patience = settings.patience
    training.stopped_early = patience is not None and training.waited >= patience and step < settings.steps
    return value


def _check_averages(flow: Flow, step: int, curves: Curves) -> None:
    """Enter the smallest log|det| of the averaged layers: an average of invertible matrices can be singular."""
    smallest = smallest_log_det(flow)
    if smallest is None:
        return
    path, value = smallest
    curves.setdefault("average_log_det", []).append(finite(value))
    if not math.isfinite(value):
        raise Diverged(f"the averaged weights of {path} are singular at step {step}: log|det| is {value}", curves)
