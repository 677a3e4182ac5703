"""A density trial: train one flow, evaluate it on the test split once, audit its likelihood, draw samples."""

from __future__ import annotations

import io
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flows import Flow, UnsupportedEvent
from flows.baselines import MissingLibrary
from harness.audit.audit import Audit, audit
from harness.core.errors import DataError, Diverged
from harness.core.records import Record, blank_record, finite, write_atomically
from harness.core.settings import DensityTrial, LayerRef, Progress
from harness.datasets import Splits, Store, find_dataset
from harness.evaluation.evaluation import Evaluation, evaluate, generator
from harness.evaluation.fidelity import measure_fidelity
from harness.evaluation.learned_maps import learned_maps
from harness.evaluation.neighbours import neighbour_arrays
from harness.pipeline.models import build_flow, make_layer
from harness.pipeline.pipeline import Pipeline
from harness.training.training import Fit, claimed_shift, fit
from harness.training.weights import load_flow, save_flow
from layers import InvertibleLinear, UnsupportedShape, free_parameters

if TYPE_CHECKING:
    from harness.training.checkpoints import Checkpoints

SAMPLES = 100
TRAINING_SHARE = 0.9  # of the progress bar


def run_density(
    trial: DensityTrial,
    root: Path | None,
    out: Path,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> Record:
    """Run a density trial; a shape that cannot be served and a divergence are outcomes, not errors.

    Args:
        trial: its settings.
        root: folder of data sets that are not installed with a package.
        out: the suite's folder; samples go to `out/records/<id>.npz`, beside the record, and the chosen weights to
            `out/weights/<id>.pt` (see `harness.training.weights`).
        progress: told the fraction done and a short text.
        checkpoints: see `fit`.

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
    pipeline = Pipeline(splits, trial.data, device=device)
    try:
        flow = build_flow(pipeline.shape, trial.layer, trial.flow, trial.seed, trial.data.permute).to(device)
    except (UnsupportedShape, UnsupportedEvent) as error:
        return blank_record(trial, "unsupported", str(error))
    except MissingLibrary as error:
        return blank_record(trial, "error", f"{error}, then run again with --retry-failed")
    record = blank_record(trial, "ok", None)
    record.notes |= data_notes(splits) | layer_notes(flow)
    row: dict[str, Any] = {
        "unit": pipeline.unit,
        "parameters": sum(parameter.numel() for parameter in flow.parameters() if parameter.requires_grad),
        "masked_free": free_parameters(flow),
    }
    record.rows = [row]

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
    row["audit_seconds"] = time.perf_counter() - begin
    floor = pipeline.floor()
    fault = below_floor(test, pipeline, floor)
    if fault is not None:
        findings.reasons.append(fault)
    if test.non_finite:
        findings.reasons.append(
            f"log-likelihood is not finite for {test.non_finite} of {test.values.numel()} test values"
        )
    _fill(record, training, test, findings, pipeline)
    row |= {"floor": floor, "below_floor": fault is not None}
    if trial.training.accounting != "true":
        row["claimed"] = finite(getattr(test, pipeline.unit) + claimed_shift(flow, pipeline))
    progress(0.98, "samples")
    record.arrays = _save_samples(record, flow, pipeline, trial, out)
    asked, batch = trial.training.samples, trial.training.evaluation_batch
    if asked is not None:
        progress(0.99, f"{asked.count} samples against real images")
    fidelity = measure_fidelity(flow, pipeline, asked, trial.seed, batch, root)
    row |= fidelity.row
    record.notes |= fidelity.notes
    progress(1.0, f"{pipeline.unit} {getattr(test, pipeline.unit):.3f}, audit {findings.verdict}")
    return record


def data_notes(splits: Splits) -> dict[str, str]:
    """Which data a trial saw: what they hold, the size of each split, and what is known of their source."""
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
    """How shapes are served, where a layer has a remark on that."""
    layers = (module for module in flow.modules() if isinstance(module, InvertibleLinear))
    remarks = dict.fromkeys(layer.remark for layer in layers if layer.remark is not None)
    return {"layer": "; ".join(remarks)} if remarks else {}


def below_floor(test: Evaluation, pipeline: Pipeline, floor: float | None) -> str | None:
    """Why a likelihood is none: it is better than the resolution of the data allows. None where it is not.

    The floor bounds the expectation over the dequantisation noise for every density and every point. The mean
    of a finite draw may fall below it by chance, so three standard errors are granted; without dequantisation
    there is no chance in it, and nothing is granted.
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


def _fill(record: Record, training: Fit, test: Evaluation, findings: Audit, pipeline: Pipeline) -> None:
    """Enter every measure; one that is not a finite number is None, with the reason in the notes."""
    measures = {
        "bits_per_dim": test.bits_per_dim,
        "nats_per_dim": test.nats_per_dim,
        "standard_error": test.standard_error,
        "median": test.median,
        "worst": test.worst,
        "importance_weighted": test.importance_weighted,
        "prior_nats_per_dim": test.parts.prior,
        "log_det_nats_per_dim": test.parts.log_det,
        "preprocessing_nats_per_dim": test.parts.preprocessing,
        "validation": min(value for value in training.curves["validation"] if value is not None),
        "inverse_error": findings.inverse_error,
        "logdet_error": findings.logdet_error,
        "condition": findings.condition,
    }
    for name, value in measures.items():
        record.rows[0][name] = finite(value)
        if not math.isfinite(value):
            record.notes[name] = f"the value is {value}"
    if test.non_finite:
        note = f"not finite for {test.non_finite} of {test.values.numel()} test values"
        record.notes |= dict.fromkeys(("bits_per_dim", "nats_per_dim"), note)
    averaged = [value for value in training.curves.get("average_log_det", []) if value is not None]
    if averaged:
        record.notes["ema"] = f"log|det| per dimension of an averaged layer: at least {min(averaged):.3g} nats"
    if test.draw_spread is not None and math.isfinite(test.draw_spread):
        record.notes["draws"] = (
            f"standard deviation between {len(test.values)} dequantisation draws: {test.draw_spread:.2g}"
        )
    record.rows[0]["estimate_error"] = None
    if test.estimate_error is not None:
        record.rows[0]["estimate_error"] = finite(test.estimate_error)
        if findings.estimate_error is not None and findings.lipschitz is not None:
            record.notes["estimates"] = (
                f"audited, the mean of many is {findings.estimate_error:.1g} nats/dim or less from exact values, and "
                f"Lipschitz constants are at most {findings.lipschitz:.3f}"
            )
            if findings.estimate_bias:
                record.notes["estimates"] += (
                    f"; the series is cut off, which biases it by at most {findings.estimate_bias:.1g} nats/dim"
                )
        if len(test.values) > 1:
            record.notes["importance_weighted"] = "none: an estimated log-determinant has no unbiased exponential"
    if pipeline.lattice and not pipeline.dequantises:
        record.notes["dequantise"] = (
            "raw values without dequantisation: where they lie on a lattice, any density is possible"
        )
    record.rows[0] |= {
        "audit": findings.verdict,
        "audit_reason": "; ".join(findings.reasons) or None,
        "draws": len(test.values),
        "steps": training.steps_done,
        "passes": training.passes,
        "best_step": training.best_step,
        "stopped_early": training.stopped_early,
        "train_seconds": training.train_seconds,
    }
    record.audit = findings.record()
    if findings.sample_failures:
        record.notes["fresh z"] = (
            f"z -> x -> z is lost in float32 for {findings.sample_failures} of {findings.samples} fresh z; the inverse "
            f"explodes for {findings.sample_exploded}"
        )


def _rebuild(trial: DensityTrial, old: InvertibleLinear, shape: tuple[int, ...]) -> InvertibleLinear:
    """A layer of the same kind and options as one of the trial's flow, the mixer included, on another shape."""
    ref = trial.layer
    if old.registered_name == "conv1x1" and ref.layer != "conv1x1":
        ref = LayerRef(row="mixer", layer="conv1x1", options=(("parameterisation", trial.flow.mixer),))
    return make_layer(ref, shape, seed=trial.seed)


def _save_samples(record: Record, flow: Flow, pipeline: Pipeline, trial: DensityTrial, out: Path) -> str | None:
    """Write samples beside as many test events, the training examples nearest to both, and what the layer became.

    Returns:
        The file name, or None where the flow gives no samples.
    """
    row = record.rows[0]
    row |= {"neighbour_distance": None, "neighbour_distance_test": None}
    data = pipeline.raw("test")[:SAMPLES]
    try:
        drawn = flow.sample(len(data), generator=generator(torch.device("cpu"), trial.seed, "samples"))
    except Exception as error:  # the layer may be anybody's; the audit has the fault of its inverse
        record.notes["samples"] = f"none: {type(error).__name__}: {error}"
        return None
    lost = int((~drawn.isfinite()).flatten(1).any(1).sum())
    if lost:
        record.notes["samples"] = f"{lost} of {len(drawn)} are not finite"
    arrays: dict[str, Any] = {"data": data.cpu().numpy(), "samples": pipeline.to_data(drawn)}
    arrays |= neighbour_arrays(pipeline, arrays["data"], arrays["samples"])
    for name, measure in (("samples", "neighbour_distance"), ("data", "neighbour_distance_test")):
        row[measure] = finite(np.median(arrays[f"{name}_neighbour_distance"]))
    searched, known = int(arrays["neighbours_searched"]), len(pipeline.raw("train"))
    if searched < known:
        record.notes["neighbours"] = f"sought among {searched:,} of {known:,} training events, evenly spaced"
    try:
        arrays |= learned_maps(flow)
    except Exception as error:
        record.notes["maps"] = f"none: {type(error).__name__}: {error}"
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    name = f"{trial.id}.npz"
    write_atomically(out / "records" / name, content.getvalue())
    return name
