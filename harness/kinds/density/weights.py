"""The weights that a density trial chose, with the range and units of the data: written atomically, and loaded.

A file is what `torch.save` writes, followed by its SHA-256.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pydantic import PositiveInt, TypeAdapter, ValidationError
from torch.utils._pytree import tree_map_only

from flows import Flow
from harness.core.errors import DataError, UserError
from harness.core.files import STATE, atomic_file, checked_name, read_file
from harness.core.settings import Settings
from harness.kinds.density.trial import DensityTrial, FlowTrial
from harness.pipeline.models import build_flow
from harness.pipeline.pipeline import Pipeline, ValueRange
from harness.training.checkpoints import read_tensors

AGAIN = "delete the record of the trial and this file, and run the suite again"


class Weights(Settings):
    """The content of a file."""

    trial: str
    shape: tuple[PositiveInt, PositiveInt] | tuple[PositiveInt, PositiveInt, PositiveInt]
    changes: dict[str, Any]
    values: Any
    state: dict[str, Any]


def weights_path(trial: FlowTrial, out: Path) -> Path:
    """Return `out/weights/<id>.pt`."""
    return out / "weights" / f"{checked_name(trial.id)}.pt"


def save_flow(
    flow: Flow, trial: FlowTrial, out: Path, changes: Mapping[str, Any], values: ValueRange | None = None
) -> Path:
    """Write the state of a trained flow, on the CPU, with the trial's id, its tuned settings and the event shape.

    Args:
        values: of the training data, from which `load_trained` makes the pre-processing; None: only the flow is needed.
    """
    state = tree_map_only(torch.Tensor, torch.Tensor.cpu, dict(flow.state_dict()))
    ranges = None if values is None else asdict(values)
    path = weights_path(trial, out)
    document = {"trial": trial.id, "shape": flow.shape, "changes": dict(changes), "values": ranges, "state": state}
    write_weights(path, document)
    return path


def write_weights(path: Path, document: Mapping[str, Any]) -> None:
    """Write the content of a file of weights, and its SHA-256."""
    content = io.BytesIO()
    torch.save(dict(document), content)
    with atomic_file(path) as file:
        file.write(content.getbuffer())
        file.write(hashlib.sha256(content.getbuffer()).digest())


def load_flow(trial: FlowTrial, path: Path) -> Flow:
    """Return a trial's trained flow, with the evaluated weights, on the trial's device, in eval().

    Raises:
        UserError: the file is missing, damaged, or of another trial.
    """
    return _flow(trial, _read(trial, path), path, trial.device)


def load_trained(trial: FlowTrial, path: Path, device: str) -> tuple[Flow, Pipeline]:
    """Return the flow of `load_flow`, on another device, with the pre-processing of its data, but not its files."""
    content = _read(trial, path)
    flow = _flow(trial, content, path, device)
    try:
        values = TypeAdapter(ValueRange).validate_python(content.values)
        splits = values.as_splits(flow.shape)
    except (DataError, TypeError, ValueError) as error:
        raise UserError(f"{path}: without the range and the units of the data, or with wrong ones; {AGAIN}") from error
    return flow, Pipeline(splits, trial.data, device=device, seed=trial.seed, values=values)


def _flow(trial: FlowTrial, content: Weights, path: Path, device: str) -> Flow:
    if isinstance(trial, DensityTrial):
        try:
            trial = trial.settled(content.changes)
        except ValueError as error:
            raise UserError(f"{path}: not the settings of a trial; {AGAIN}") from error
    permute = trial.data.permutation_seed(trial.seed)
    flow = build_flow(content.shape, trial.layer, trial.flow, trial.seed, permute)
    try:
        flow.load_state_dict(content.state)
    except (AttributeError, RuntimeError, TypeError) as error:
        raise UserError(
            f"{path}: the weights do not fit the flow of its trial, whose layer may have changed since "
            f"({' '.join(str(error).split())}); {AGAIN}"
        ) from error
    return flow.to(device).eval()


def _read(trial: FlowTrial, path: Path) -> Weights:
    try:
        content = Weights.model_validate(read_tensors(read_file(path, STATE)))
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; {AGAIN}") from error
    except (OSError, ValueError) as error:
        reason = "it holds something else" if isinstance(error, ValidationError) else error
        raise UserError(f"{path}: not readable as the weights of a trial ({reason}); {AGAIN}") from error
    if content.trial != trial.id:
        raise UserError(f"{path}: the weights of trial {content.trial}, not of {trial.id}; name that trial's file")
    return content
