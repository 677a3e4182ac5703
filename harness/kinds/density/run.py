"""A density trial: train one flow, evaluate it on the test split once, audit its likelihood, draw samples."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from flows import Flow, UnsupportedEvent
from flows.baselines import MissingLibrary
from harness.audit.audit import Audit, audit
from harness.core.errors import DataError, Diverged
from harness.core.records import Record, blank_record
from harness.core.settings import LayerRef, Progress
from harness.datasets import Splits, Store, find_dataset
from harness.evaluation.evaluation import Evaluation, evaluate
from harness.evaluation.fidelity import measure_fidelity
from harness.kinds.density.result import DensityResult
from harness.kinds.density.samples import save_samples
from harness.kinds.density.trial import DensityTrial
from harness.kinds.density.weights import load_flow, save_flow
from harness.pipeline.models import build_flow, make_layer
from harness.pipeline.pipeline import Pipeline
from harness.training.training import Fit, claimed_shift, fit
from layers import LAYERS, InvertibleLinear, UnsupportedShape, free_parameters

if TYPE_CHECKING:
    from harness.training.checkpoints import Checkpoints

TRAINING_SHARE = 0.9  # of the progress bar


def run(
    trial: DensityTrial,
    root: Path | None,
    out: Path,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> Record:
    """Run a density trial; a shape that cannot be served and a divergence are outcomes, not errors.

    Samples go to `out/records/<id>.npz`, beside the record, and the chosen weights to `out/weights/<id>.pt` (see
    `harness.kinds.density.weights`).

    Returns:
        A record of one row. `median` and `worst` (over the test events), `standard_error`, `estimate_error` (of a flow
        of estimates: the part of the standard error that these make), `importance_weighted` (over `draws` draws),
        `validation` and `floor` are in the data set's own unit, and the three parts `*_nats_per_dim` sum to
        `nats_per_dim`; a trial whose audit failed keeps the status "ok" and is marked by `audit` and `audit_reason`.

    Raises:
        DataError: the data are not those that the trial was planned for.
    """
    torch.manual_seed(trial.seed)
    device = torch.device(trial.device)
    splits = find_dataset(trial.data.name).load(Store.at(root, offline=True), dict(trial.data.options))
    if trial.data.checksum is not None and splits.checksum != trial.data.checksum:
        raise DataError(
            f"{trial.data.label}: the data have changed since the plan was made (checksum {splits.checksum}, planned "
            f"{trial.data.checksum}); run the suite again, which plans anew"
        )
    pipeline = Pipeline(splits, trial.data, device=device, seed=trial.seed)
    permute = trial.data.permutation_seed(trial.seed)
    try:
        flow = build_flow(pipeline.shape, trial.layer, trial.flow, trial.seed, permute).to(device)
    except (UnsupportedShape, UnsupportedEvent) as error:
        return blank_record(trial, "unsupported", str(error))
    except MissingLibrary as error:
        return blank_record(trial, "error", f"{error}, then run again with --retry-failed")
    record = blank_record(trial, "ok", None)
    record.notes |= data_notes(splits) | layer_notes(flow)
    size = DensityResult(
        unit=pipeline.unit,
        parameters=sum(parameter.numel() for parameter in flow.parameters() if parameter.requires_grad),
        masked_free=free_parameters(flow),
    )
    record.rows = [size.row()]

    def training_progress(done: float, text: str) -> None:
        progress(TRAINING_SHARE * done, text)

    try:
        training = fit(flow, pipeline, trial.training, trial.seed, training_progress, checkpoints)
    except Diverged as error:
        record.status, record.reason, record.curves = "diverged", str(error), error.curves
        return record
    record.curves = training.curves
    saved = save_flow(flow, trial, out)
    progress(TRAINING_SHARE, "test likelihood")
    test = evaluate(flow, pipeline, "test", trial.training.draws, trial.training.evaluation_batch, trial.seed)
    progress(0.93, "audit")
    begin = time.perf_counter()
    findings = audit(
        flow, pipeline, test, lambda old, shape: _rebuild(trial, old, shape), lambda: load_flow(trial, saved)
    )
    audit_seconds = time.perf_counter() - begin
    floor = pipeline.floor()
    fault = below_floor(test, pipeline, floor)
    if fault is not None:
        findings.reasons.append(fault)
    if test.non_finite:
        findings.reasons.append(
            f"log-likelihood is not finite for {test.non_finite} of {test.values.numel()} test values"
        )
    record.audit = findings.record()
    record.notes |= _notes(training, test, findings, pipeline)
    progress(0.98, "samples")
    record.arrays, distances, sample_notes = save_samples(flow, pipeline, trial, out)
    asked, batch = trial.training.samples, trial.training.evaluation_batch
    if asked is not None:
        progress(0.99, f"{asked.count} samples against real images")
    fidelity = measure_fidelity(flow, pipeline, asked, trial.seed, batch, root)
    claimed = None
    if trial.training.accounting != "true":
        claimed = getattr(test, pipeline.unit) + claimed_shift(flow, pipeline)
    result = replace(
        size,
        bits_per_dim=test.bits_per_dim,
        nats_per_dim=test.nats_per_dim,
        standard_error=test.standard_error,
        median=test.median,
        worst=test.worst,
        estimate_error=test.estimate_error,
        draws=len(test.values),
        importance_weighted=test.importance_weighted,
        prior_nats_per_dim=test.parts.prior,
        log_det_nats_per_dim=test.parts.log_det,
        preprocessing_nats_per_dim=test.parts.preprocessing,
        validation=min(value for value in training.curves["validation"] if value is not None),
        inverse_error=findings.inverse_error,
        logdet_error=findings.logdet_error,
        condition=findings.condition,
        floor=floor,
        below_floor=fault is not None,
        audit=findings.verdict,
        audit_reason="; ".join(findings.reasons) or None,
        audit_seconds=audit_seconds,
        claimed=claimed,
        steps=training.steps_done,
        passes=training.passes,
        best_step=training.best_step,
        stopped_early=training.stopped_early,
        train_seconds=training.train_seconds,
        **distances,
        **fidelity.row,
    )
    record.rows = [result.row()]
    record.notes = result.notes() | record.notes | sample_notes | fidelity.notes
    progress(1.0, f"{pipeline.unit} {getattr(test, pipeline.unit):.3f}, audit {findings.verdict}")
    return record


def data_notes(splits: Splits) -> dict[str, str]:
    """Return the content, the sizes of the splits and the source of the data that a trial read."""
    notes = {
        "data": splits.description,
        "splits": ", ".join(f"{len(values):,} {name}" for name, values in splits.parts().items()),
    }
    if splits.steps is not None:
        notes["steps"] = ", ".join(f"{size:g} {unit}" for size, unit in splits.steps)
    if splits.checksum is not None:
        notes["checksum"] = splits.checksum
    if splits.no_floor is not None:
        notes["floor"] = splits.no_floor
    return notes


def layer_notes(flow: Flow) -> dict[str, str]:
    """Return the remarks of layers on how they serve their shapes."""
    layers = (module for module in flow.modules() if isinstance(module, InvertibleLinear))
    remarks = dict.fromkeys(layer.remark for layer in layers if layer.remark is not None)
    return {"layer": "; ".join(remarks)} if remarks else {}


def below_floor(test: Evaluation, pipeline: Pipeline, floor: float | None) -> str | None:
    """Return why a likelihood is better than the resolution of the data allows, hence invalid; None where it is not.

    The floor bounds the expectation over the dequantisation noise for every density and every point. The mean of a
    finite draw may fall below it, so three standard errors are granted; without noise nothing is granted.
    """
    mean = getattr(test, pipeline.unit)
    if floor is None:
        return None
    error = test.standard_error if pipeline.dequantises and math.isfinite(test.standard_error) else 0.0
    if not mean < floor - 3 * error:
        return None
    return f"{pipeline.unit} {mean:.4g} is below the resolution floor {floor:.4g} of the data: no likelihood. " + (
        "The noise or a log-det is wrong" if pipeline.dequantises else "Dequantise the data"
    )


def _notes(training: Fit, test: Evaluation, findings: Audit, pipeline: Pipeline) -> dict[str, str]:
    """Return remarks on the measures."""
    notes: dict[str, str] = {}
    if test.non_finite:
        note = f"not finite for {test.non_finite} of {test.values.numel()} test values"
        notes |= dict.fromkeys(("bits_per_dim", "nats_per_dim"), note)
    averaged = [value for value in training.curves.get("average_log_det", []) if value is not None]
    if averaged:
        notes["ema"] = f"log|det| per dimension of an averaged layer: at least {min(averaged):.3g} nats"
    if test.draw_spread is not None and math.isfinite(test.draw_spread):
        notes["draws"] = f"standard deviation between {len(test.values)} dequantisation draws: {test.draw_spread:.2g}"
    if test.estimate_error is not None and len(test.values) > 1:
        notes["importance_weighted"] = "none: an estimated log-determinant has no unbiased exponential"
    if test.estimate_error is not None and findings.estimate_error is not None and findings.lipschitz is not None:
        notes["estimates"] = (
            f"audited, the mean of many is {findings.estimate_error:.1g} nats/dim or less from exact values, and "
            f"Lipschitz constants are at most {findings.lipschitz:.3f}"
        )
        if findings.estimate_bias:
            notes["estimates"] += (
                f"; the series is cut off, which biases it by at most {findings.estimate_bias:.1g} nats/dim"
            )
    if pipeline.lattice and not pipeline.dequantises:
        notes["dequantise"] = "raw values without dequantisation: where they lie on a lattice, any density is possible"
    if findings.sample_failures:
        notes["fresh z"] = (
            f"z -> x -> z is lost in float32 for {findings.sample_failures} of {findings.samples} fresh z; the inverse "
            f"explodes for {findings.sample_exploded}"
        )
    return notes


def _rebuild(trial: DensityTrial, old: InvertibleLinear, shape: tuple[int, ...]) -> InvertibleLinear:
    """Return a layer with the options of one of the trial's flow, the mixer included, on another shape."""
    ref = trial.layer
    if type(old) is LAYERS["conv1x1"]:  # the mixer, or a 1x1 convolution under test
        ref = LayerRef(row="mixer", layer="conv1x1", options=(("parameterisation", old.parameterisation),))
    return make_layer(ref, shape, seed=trial.seed)
