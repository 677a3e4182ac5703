"""The weights that a density trial chose, on disk: written atomically, and loaded into the same flow."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from flows import Flow
from harness.core.errors import UserError
from harness.core.records import write_atomically
from harness.kinds.density.trial import DensityTrial, FlowTrial
from harness.pipeline.models import build_flow


def weights_path(trial: FlowTrial, out: Path) -> Path:
    """Return `out/weights/<id>.pt`."""
    return out / "weights" / f"{trial.id}.pt"


def save_flow(flow: Flow, trial: FlowTrial, out: Path, changes: Mapping[str, Any]) -> Path:
    """Write the state of a trained flow, on the CPU, with the trial's id, its tuned settings and the event shape."""
    state = {name: value.cpu() for name, value in flow.state_dict().items()}
    content = io.BytesIO()
    torch.save({"trial": trial.id, "shape": flow.shape, "changes": dict(changes), "state": state}, content)
    path = weights_path(trial, out)
    write_atomically(path, content.getvalue())
    return path


def load_flow(trial: FlowTrial, path: Path) -> Flow:
    """Return a trial's trained flow, with the evaluated weights, on the trial's device, in eval().

    Args:
        trial: the settings that the weights belong to.
        path: file written by `save_flow`.

    Raises:
        UserError: the file is missing, damaged, or of another trial.
    """
    content = _read(path)
    if content["trial"] != trial.id:
        raise UserError(f"{path}: the weights of trial {content['trial']}, not of {trial.id}; name that trial's file")
    if isinstance(trial, DensityTrial):
        try:
            trial = trial.settled(content["changes"])
        except ValueError as error:
            raise UserError(f"{path}: not the settings of a trial; delete it and run the suite again") from error
    permute = trial.data.permutation_seed(trial.seed)
    flow = build_flow(content["shape"], trial.layer, trial.flow, trial.seed, permute)
    try:
        flow.load_state_dict(content["state"])
    except RuntimeError as error:
        raise UserError(
            f"{path}: the weights do not fit the flow of its trial, whose layer may have changed since "
            f"({' '.join(str(error).split())}); delete the file and run the suite again"
        ) from error
    return flow.to(trial.device).eval()


def _read(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(content, dict) or content.keys() != {"trial", "shape", "changes", "state"}:
            raise ValueError("it holds something else")
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; run the suite to get the weights") from error
    except (OSError, EOFError, ValueError, RuntimeError, KeyError, pickle.UnpicklingError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{path}: not readable as the weights of a trial ({reason}); delete it and run the suite again"
        ) from error
    return content
