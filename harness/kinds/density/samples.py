"""Samples of a trained flow: drawn, compared with training examples, and saved beside the record."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flows import Flow
from harness.core.records import write_atomically
from harness.evaluation.evaluation import generator
from harness.evaluation.learned_maps import learned_maps
from harness.evaluation.neighbours import neighbour_arrays
from harness.kinds.density.trial import DensityTrial
from harness.pipeline.pipeline import Pipeline

SAMPLES = 100


@dataclass
class SavedSamples:
    """The outcome of sampling.

    Attributes:
        name: of the file beside the record; None where the flow gives no samples.
        neighbour_distance: median distance of a sample to the nearest training example.
        neighbour_distance_test: the same of as many test events.
        notes: remarks for the record.
    """

    name: str | None = None
    neighbour_distance: float | None = None
    neighbour_distance_test: float | None = None
    notes: dict[str, str] = field(default_factory=dict)


def save_samples(flow: Flow, pipeline: Pipeline, trial: DensityTrial, out: Path) -> SavedSamples:
    """Write samples beside as many test events, their nearest training examples, and the learned matrices."""
    saved = SavedSamples()
    data = pipeline.raw("test")[:SAMPLES]
    try:
        drawn = flow.sample(len(data), generator=generator(torch.device("cpu"), trial.seed, "samples"))
    except Exception as error:  # third-party code may raise anything; the audit already reports a broken inverse
        saved.notes["samples"] = f"none: {type(error).__name__}: {error}"
        return saved
    lost = int((~drawn.isfinite()).flatten(1).any(1).sum())
    if lost:
        saved.notes["samples"] = f"{lost} of {len(drawn)} are not finite"
    arrays: dict[str, Any] = {"data": data.cpu().numpy(), "samples": pipeline.to_data(drawn)}
    arrays |= neighbour_arrays(pipeline, arrays["data"], arrays["samples"])
    saved.neighbour_distance = float(np.median(arrays["samples_neighbour_distance"]))
    saved.neighbour_distance_test = float(np.median(arrays["data_neighbour_distance"]))
    searched, known = int(arrays["neighbours_searched"]), len(pipeline.raw("train"))
    if searched < known:
        saved.notes["neighbours"] = f"sought among {searched:,} of {known:,} training events, evenly spaced"
    try:
        arrays |= learned_maps(flow)
    except Exception as error:  # third-party code may raise anything, and a trial without its matrices is a result
        saved.notes["maps"] = f"none: {type(error).__name__}: {error}"
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    saved.name = f"{trial.id}.npz"
    write_atomically(out / "records" / saved.name, content.getvalue())
    return saved
