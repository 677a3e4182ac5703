"""A density trial: train one flow, evaluate it on the test split once, audit its likelihood, draw samples."""

from __future__ import annotations

import io
import math
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from flows import Flow, UnsupportedEvent
from harness.audit.audit import Audit, audit, audit_candidate
from harness.core.errors import DataError, Diverged
from harness.core.global_settings import GlobalSettings
from harness.core.layer_classes import kept_default_dtype
from harness.core.records import Record, Status, blank_record, write_arrays
from harness.core.settings import LayerRef, Progress, TrainingSettings
from harness.core.texts import error_text
from harness.datasets import Splits, Store, find_dataset
from harness.evaluation.evaluation import Evaluation, evaluate, generator, nats_per_event, resolution_floor
from harness.evaluation.fidelity import measure_fidelity
from harness.evaluation.stored_arrays import neighbour_arrays
from harness.kinds.density.accounting import ReleasedAccounting, claimed_shift
from harness.kinds.density.crossings import Crossings
from harness.kinds.density.result import DensityResult
from harness.kinds.density.trial import DensityTrial, FlowTrial, as_text
from harness.kinds.density.tuning.choice import Chosen, NoChoice, choose
from harness.kinds.density.weights import load_flow, save_flow
from harness.pipeline.data_remarks import data_notes, notes_of, remarks_on
from harness.pipeline.models import build_flow, make_layer
from harness.pipeline.pipeline import Pipeline
from harness.training.training import Callback, Fit, fit
from layers import LAYERS, InvertibleLinear, UnsupportedShape, count_entries, free_parameters

if TYPE_CHECKING:
    from harness.training.checkpoints import Checkpoints

TRAINING_SHARE = 0.9  # of the progress bar


@dataclass(frozen=True)
class EvaluatedFlow:
    """A flow after training, evaluated and audited on held-out data."""

    settings: TrainingSettings
    flow: Flow
    pipeline: Pipeline
    evaluation: Evaluation
    findings: Audit
    result: DensityResult  # without the measures of the test split


class Ended(Exception):
    """A trial ended before its flow was evaluated."""

    def __init__(self, status: Status, reason: str | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def run(
    trial: DensityTrial,
    root: Path | None,
    out: Path,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> Record:
    """Run a density trial; a shape that cannot be served and a divergence are outcomes, not errors.

    Under tuning the settings are those of the candidate that the records in `out/records` choose. Samples go to
    `out/records/`, beside the record, and the chosen weights to `out/weights/<id>.pt` (see
    `harness.kinds.density.weights`).

    Returns:
        A record of one row. `median` and `worst` (over the test events), `standard_error`, `estimate_error` (of a flow
        of estimates: the part of the standard error that these make), `importance_weighted` (over `draws` draws),
        `validation` and `floor` are in the data set's unit, and the three parts `*_nats_per_dim` sum to
        `nats_per_dim`; a trial whose audit failed keeps the status "ok" and is marked by `audit` and `audit_reason`.

    Raises:
        DataError: the data are not those that the trial was planned for.
        UserError: a candidate of the tuning has no record.
    """
    try:
        chosen = None if trial.tuning is None else choose(trial, out)
    except NoChoice as error:
        return blank_record(trial, error.status, str(error))
    checked = {} if chosen is None or chosen.check is None else {"check": chosen.check}
    record = blank_record(trial, "ok", None)
    try:
        trained = train(trial, record, "test", root, out, progress, checkpoints, chosen)
    except Ended as end:
        record.status, record.reason = end.status, end.reason
        record.rows = [row | checked for row in record.rows]
        return record
    flow, pipeline, test, training = trained.flow, trained.pipeline, trained.evaluation, trained.settings
    progress(0.98, "samples")
    record.arrays, distances, sample_notes = _save_samples(flow, pipeline, trial, out)
    if training.samples is not None:
        progress(0.99, f"{training.samples.count} samples against real images")
    fidelity = measure_fidelity(flow, pipeline, training.samples, trial.seed, training.evaluation_batch, root)
    shift = None if training.accounting == "true" else claimed_shift(flow, pipeline)
    result = replace(
        trained.result,
        bits_per_dim=test.bits_per_dim,
        nats_per_dim=test.nats_per_dim,
        nats_per_event=nats_per_event(pipeline, test.nats_per_dim),
        median=test.median,
        worst=test.worst,
        test_events=test.values.shape[1],
        draws=len(test.values),
        importance_weighted=test.importance_weighted,
        prior_nats_per_dim=test.parts.prior,
        log_det_nats_per_dim=test.parts.log_det,
        preprocessing_nats_per_dim=test.parts.preprocessing,
        claimed=None if shift is None else getattr(test, pipeline.unit) + shift,
        **distances,
        **fidelity.row,
    )
    record.rows = [result.row() | checked]
    record.notes = result.notes() | record.notes | sample_notes | fidelity.notes
    progress(1.0, f"{pipeline.unit} {getattr(test, pipeline.unit):.3f}, audit {trained.findings.verdict}")
    return record


def train(
    planned: FlowTrial,
    record: Record,
    held_out: Literal["validation", "test"],
    root: Path | None,
    out: Path | None,
    progress: Progress,
    checkpoints: Checkpoints | None,
    chosen: Chosen | None = None,
) -> EvaluatedFlow:
    """Train the flow of a trial, evaluate and audit it on a held-out split, and save its weights.

    The record gets curves, audit, notes and, in its row, the size of the flow.

    Args:
        held_out: "validation" leaves the values of the test split out of the pipeline, so that nothing can read them.
        out: folder for the weights, which the audit then reads back; None: they are not kept.
        chosen: the choice of the trial's tuning, whose settings replace the planned ones.

    Raises:
        Ended: the flow cannot be built, diverges, or is not to be audited.
    """
    trial = planned
    if chosen is not None and isinstance(planned, DensityTrial):
        trial = planned.settled(chosen.changes)
        if checkpoints is not None:
            checkpoints.chosen = chosen.text
    splits = load_splits(trial, root)
    record.notes |= data_notes(splits)
    surroundings = GlobalSettings()
    if held_out == "validation":
        splits = replace(splits, test=splits.validation)
    else:
        record.notes |= notes_of(remarks_on(Store.at(root), trial.data, splits))
    pipeline, flow = built(trial, splits)
    layers = [module for module in flow.modules() if isinstance(module, InvertibleLinear)]
    texts = [flow.remark, *(layer.remark for layer in layers)]
    if remarks := "; ".join(dict.fromkeys(text for text in texts if text is not None)):
        record.notes["layer"] = remarks
    size = DensityResult(
        unit=pipeline.unit,
        parameters=count_entries(parameter for parameter in flow.parameters() if parameter.requires_grad),
        masked_free=free_parameters(flow),
        learning_rate=trial.training.learning_rate,
        options=as_text(dict(trial.layer.options)),
        candidate=None if chosen is None else chosen.number,
        candidates=None if chosen is None else chosen.candidates,
        chosen=None if chosen is None else chosen.text,
        test_share=splits.share_of_test(trial.data.new_split),
    )
    record.rows = [size.row()]
    training = _fitted(trial, flow, pipeline, record, progress, checkpoints)
    trained = replace(
        size,
        parameters=training.parameters,
        masked_free=min(free_parameters(flow), training.parameters),
        validation=training.best,
        steps=training.steps_done,
        passes=training.passes,
        best_step=training.best_step,
        stopped_early=training.stopped_early,
        train_seconds=training.train_seconds,
    )
    record.rows, record.notes = [trained.row()], trained.notes() | record.notes
    if not trial.audited:
        raise Ended("ok")
    reload = None
    if out is not None:
        saved = save_flow(flow, planned, out, {} if chosen is None else chosen.changes, pipeline.values)
        reload = partial(load_flow, planned, saved)
    progress(TRAINING_SHARE, f"{held_out} likelihood")
    draws = trial.training.draws if held_out == "test" else 1
    evaluation = evaluate(flow, pipeline, held_out, draws, trial.training.evaluation_batch, trial.seed)
    progress(0.93, "audit")
    begin = time.perf_counter()
    make = partial(_rebuild, trial)
    if held_out == "validation":
        findings = audit_candidate(flow, pipeline, evaluation, make, training.best_likelihood)
    else:
        findings = audit(flow, pipeline, evaluation, make, reload, training.best_likelihood, trial.training)
    findings.reasons += training.faults(size.parameters)
    if changed := surroundings.restore():
        findings.reasons.append(f"the flow changes settings of its process: {'; '.join(changed)}")
    audit_seconds = time.perf_counter() - begin
    floor = resolution_floor(pipeline, held_out)
    fault = below_floor(evaluation, pipeline, floor)
    findings.reasons += [] if fault is None else [fault]
    if evaluation.non_finite:
        findings.reasons.append(
            f"log-likelihood is not finite for {evaluation.non_finite} of {evaluation.values.numel()} {held_out} values"
        )
    record.audit = findings.record()
    record.notes |= _notes(training, evaluation, findings, pipeline, held_out)
    result = replace(
        trained,
        standard_error=evaluation.standard_error,
        estimate_error=evaluation.estimate_error,
        inverse_error=findings.inverse_error,
        logdet_error=findings.logdet_error,
        condition=findings.condition,
        floor=floor,
        below_floor=fault is not None,
        audit=findings.verdict,
        audit_reason="; ".join(findings.reasons) or None,
        audit_seconds=audit_seconds,
    )
    return EvaluatedFlow(trial.training, flow, pipeline, evaluation, findings, result)


def evaluated(trial: DensityTrial, flow: Flow, root: Path | None) -> tuple[Evaluation, Audit]:
    """Evaluate and audit a trained flow of a trial again, with the data of the trial."""
    pipeline = Pipeline(load_splits(trial, root), trial.data, device=torch.device(trial.device), seed=trial.seed)
    settings = trial.training
    test = evaluate(flow, pipeline, "test", settings.draws, settings.evaluation_batch, trial.seed)
    return test, audit(flow, pipeline, test, partial(_rebuild, trial), training=settings)


def _fitted(
    trial: FlowTrial,
    flow: Flow,
    pipeline: Pipeline,
    record: Record,
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> Fit:
    """Train a flow with the callbacks that its settings select; the record gets the curves, also if it diverges."""
    settings = trial.training
    callbacks: list[Callback] = [Crossings()] if settings.watch else []
    if settings.accounting != "true":
        callbacks.append(ReleasedAccounting(pipeline))
    try:
        training = fit(
            flow,
            pipeline,
            settings,
            trial.seed,
            lambda done, text: progress(TRAINING_SHARE * done, text),
            checkpoints,
            callbacks,
        )
    except Diverged as error:
        record.curves = error.curves
        raise Ended("diverged", str(error)) from error
    record.curves = training.curves
    return training


def load_splits(trial: FlowTrial, root: Path | None) -> Splits:
    """Return the data of a trial; raise DataError if they are not those that it was planned for."""
    with kept_default_dtype():
        dataset, options = find_dataset(trial.data.name), dict(trial.data.options)
        splits = dataset.loaded(Store.at(root, offline=True), options, trial.data.new_split)
    if trial.data.checksum is not None and splits.checksum != trial.data.checksum:
        raise DataError(
            f"{trial.data.label}: the data have changed since the plan was made (checksum {splits.checksum}, planned "
            f"{trial.data.checksum}); run the suite again, which plans anew. A third-party `load` must return equal "
            "arrays each time"
        )
    return splits


def built(trial: FlowTrial, splits: Splits) -> tuple[Pipeline, Flow]:
    """Return pipeline and flow of a trial on its device; raise Ended if it has no flow."""
    torch.manual_seed(trial.seed)
    pipeline = Pipeline(splits, trial.data, device=torch.device(trial.device), seed=trial.seed)
    permute = trial.data.permutation_seed(trial.seed)
    try:
        flow = build_flow(pipeline.shape, trial.layer, trial.flow, trial.seed, permute)
    except (UnsupportedShape, UnsupportedEvent) as error:
        raise Ended("unsupported", str(error)) from error
    return pipeline, flow.to(pipeline.device)


def below_floor(test: Evaluation, pipeline: Pipeline, floor: float | None) -> str | None:
    """Return why a likelihood is better than the resolution of the data allows, hence invalid; None where it is not.

    The floor bounds the expectation over the dequantisation noise for every density and every point. The mean of a
    finite draw may fall below it, so three standard errors are granted; without noise nothing is granted.
    """
    mean = getattr(test, pipeline.unit)
    if floor is None:
        return None
    error = test.standard_error if pipeline.has_noise and math.isfinite(test.standard_error) else 0.0
    if not mean < floor - 3 * error:
        return None
    return f"{pipeline.unit} {mean:.4g} is below the resolution floor {floor:.4g} of the data: no likelihood. " + (
        "The noise or a log-det is wrong" if pipeline.has_noise else "Dequantise the data"
    )


def _notes(training: Fit, test: Evaluation, findings: Audit, pipeline: Pipeline, held_out: str) -> dict[str, str]:
    """Return remarks on the measures of a held-out split."""
    notes: dict[str, str] = {}
    if test.non_finite:
        note = f"not finite for {test.non_finite} of {test.values.numel()} {held_out} values"
        notes |= dict.fromkeys(("bits_per_dim", "nats_per_dim"), note)
    averaged = [value for value in training.curves.get("average_log_det", []) if value is not None]
    if averaged:
        notes["ema"] = f"log|det| per dimension of an averaged layer: at least {min(averaged):.3g} nats"
    if test.draw_spread is not None and math.isfinite(test.draw_spread):
        notes["draws"] = f"standard deviation between {len(test.values)} dequantisation draws: {test.draw_spread:.2g}"
    if test.estimate_error is not None and findings.estimate_error is not None and findings.lipschitz is not None:
        notes["estimates"] = (
            f"audited, the mean of many is {findings.estimate_error:.1g} nats/dim or less from exact values, and "
            f"Lipschitz constants are at most {findings.lipschitz:.3f}"
        )
        if findings.estimate_bias:
            notes["estimates"] += (
                f"; the series is cut off, which biases it by at most {findings.estimate_bias:.1g} nats/dim"
            )
    if findings.sample_failures:
        notes["fresh z"] = (
            f"z -> x -> z is lost in float32 for {findings.sample_failures} of {findings.samples} fresh z; the inverse "
            f"explodes for {findings.sample_exploded}"
        )
    return notes


def _rebuild(trial: FlowTrial, old: InvertibleLinear, shape: tuple[int, ...]) -> InvertibleLinear:
    """Return a layer with the options of one of the trial's flow, the mixer included, on another shape."""
    ref = trial.layer
    if type(old) is LAYERS["conv1x1"]:  # the mixer, or a 1x1 convolution under test
        ref = LayerRef(row="mixer", layer="conv1x1", options=(("parameterisation", old.parameterisation),))
    return make_layer(ref, shape, seed=trial.seed)


SAMPLES = 100


def _save_samples(
    flow: Flow, pipeline: Pipeline, trial: DensityTrial, out: Path
) -> tuple[str | None, dict[str, Any], dict[str, str]]:
    """Write samples and their neighbours; return the file, fields of the result, and notes."""
    notes: dict[str, str] = {}
    data = pipeline.raw("test")[:SAMPLES]
    try:
        drawn = flow.sample(len(data), generator=generator(torch.device("cpu"), trial.seed, "samples"))
    except Exception as error:  # third-party code may raise anything; the audit already reports a broken inverse
        notes["samples"] = f"none: {error_text(error)}"
        return None, {}, notes
    if lost := int((~drawn.isfinite()).flatten(1).any(1).sum()):
        notes["samples"] = f"{lost} of {len(drawn)} are not finite"
    arrays: dict[str, Any] = {"data": data.cpu().numpy(), "samples": pipeline.to_data(drawn)}
    arrays |= neighbour_arrays(pipeline, arrays["data"], arrays["samples"])
    distances = {
        "neighbour_distance": float(np.median(arrays["samples_neighbour_distance"])),
        "neighbour_distance_test": float(np.median(arrays["data_neighbour_distance"])),
    }
    searched, available = int(arrays["neighbours_searched"]), len(pipeline.raw("train"))
    if searched < available:
        notes["neighbours"] = f"sought among {searched:,} of {available:,} training events, evenly spaced"
    np.savez_compressed(content := io.BytesIO(), **arrays)
    return write_arrays(out / "records", trial.id, content.getvalue()), distances, notes
