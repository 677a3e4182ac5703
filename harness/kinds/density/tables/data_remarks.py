"""Remarks below a density table: its data, and the rows that do not compete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from harness.kinds.density.trial import DensityTrial
from harness.reporting.frame import Results

DIGITS_OF_CHECKSUM = 12


def data_remarks(results: Results, frame: pd.DataFrame) -> list[str]:
    """Return remarks on each data set, its treatment and its layers, in plan order, then on oracles.

    Args:
        results: of the suite.
        frame: of `likelihoods.density`.
    """
    trials = [trial for trial in results.plan.trials if isinstance(trial, DensityTrial)]
    remarks = []
    for column in results.plan.columns:
        own = frame[frame["dataset"] == column]
        found = [_data_text(notes) for notes in own["notes"]]
        found += [text for trial in trials if trial.data.label == column for text in _treatment(trial)]
        remarks += [f"{column}: {text}" for text in dict.fromkeys(found) if text]
        of_layers = {
            row: notes["layer"] for row, notes in zip(own["layer"], own["notes"], strict=True) if "layer" in notes
        }
        remarks += [f"{column}, {row}: {text}" for row, text in of_layers.items()]
    for row in dict.fromkeys(trial.layer.row for trial in trials if trial.layer.oracle):
        remarks.append(f"{row}: its flow is told the permutation and starts with the inverse: a bound, no competitor")
    return remarks


def _data_text(notes: Mapping[str, str]) -> str:
    """Return the data that a trial read, from its notes; empty for a trial that has none."""
    parts = [notes[name] for name in ("data", "splits") if name in notes]
    if "steps" in notes:
        parts.append(f"lattice steps {notes['steps']}")
    if "checksum" in notes:
        parts.append(f"SHA-256 {notes['checksum'][:DIGITS_OF_CHECKSUM]}…")
    if parts and "floor" in notes:
        parts.append(f"no resolution floor: {notes['floor']}")
    return "; ".join(parts)


def _treatment(trial: DensityTrial) -> Iterator[str]:
    if not trial.data.dequantise:
        yield "raw values without dequantisation; where they lie on a lattice, any density is possible"
    if trial.data.preprocessing == "logit":
        yield "modelled as logits of pixels, whose Jacobian is counted"
    if trial.data.permute is not None:
        yield f"all entries permuted, the same in every image and split, by seed {trial.data.permute}"
    if trial.data.augmentation != "none":
        yield f"training images moved at random ({trial.data.augmentation}), held-out images as they are"
