"""Samples of a trained flow: drawn, compared with training examples, and saved beside the record."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flows import Flow
from harness.core.records import write_arrays
from harness.core.texts import error_text
from harness.evaluation.evaluation import generator
from harness.evaluation.learned_maps import learned_maps
from harness.evaluation.neighbours import neighbour_arrays
from harness.kinds.density.trial import DensityTrial
from harness.pipeline.pipeline import Pipeline

SAMPLES = 100


def save_samples(
    flow: Flow, pipeline: Pipeline, trial: DensityTrial, out: Path
) -> tuple[str | None, dict[str, Any], dict[str, str]]:
    """Write samples beside as many test events, their nearest training examples, and the learned matrices.

    Returns:
        The name of the file, None where the flow gives no samples; the median distances to the nearest training
        example, as fields of `DensityResult`; and notes for the record.
    """
    notes: dict[str, str] = {}
    data = pipeline.raw("test")[:SAMPLES]
    try:
        drawn = flow.sample(len(data), generator=generator(torch.device("cpu"), trial.seed, "samples"))
    except Exception as error:  # third-party code may raise anything; the audit already reports a broken inverse
        notes["samples"] = f"none: {error_text(error)}"
        return None, {}, notes
    lost = int((~drawn.isfinite()).flatten(1).any(1).sum())
    if lost:
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
    try:
        arrays |= learned_maps(flow)
    except Exception as error:  # third-party code may raise anything, and a trial without its matrices is a result
        notes["maps"] = f"none: {error_text(error)}"
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return write_arrays(out / "records", trial.id, content.getvalue()), distances, notes
