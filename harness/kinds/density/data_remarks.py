"""What a density table says of its data and of rows that are no competitors, below the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.kinds.density.trial import DensityTrial
from harness.reporting.tables.cells import Line

if TYPE_CHECKING:
    from harness.planning.plan import Plan

DIGITS_OF_CHECKSUM = 12


def data_remarks(plan: Plan, density: Sequence[Line]) -> list[str]:
    """Per data set, in plan order: what it is, its splits, steps and checksum, what was done to it; then rows."""
    trials = [trial for trial in plan.trials if isinstance(trial, DensityTrial)]
    remarks = []
    for column in plan.columns:
        lines = [line for line in density if line["dataset"] == column]
        found = [_data_text(line) for line in lines]
        found += [text for trial in trials if trial.data.label == column for text in _treatment(trial)]
        remarks += [f"{column}: {text}" for text in dict.fromkeys(found) if text]
        rows = {line["layer"]: notes["layer"] for line in lines if "layer" in (notes := line.get("notes") or {})}
        remarks += [f"{column}, {row}: {text}" for row, text in rows.items()]
    for row in dict.fromkeys(trial.layer.row for trial in trials if trial.layer.oracle):
        remarks.append(f"{row}: its flow is told the permutation and starts with the inverse: a bound, no competitor")
    return remarks


def _data_text(line: Line) -> str:
    """The data that a trial saw, as its notes have it; empty for a trial that has none."""
    notes = line.get("notes") or {}
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
