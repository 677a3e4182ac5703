"""Estimate the duration of a trial from the durations of similar trials."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from statistics import fmean
from typing import Any

from harness.core.records import Record
from harness.core.settings import Trial

COMPLETED = ("ok", "unsupported", "diverged")  # statuses of trials that ended by themselves


class Experience:
    """Durations of finished trials.

    The estimate uses the most similar of these groups that is not empty: trials that differ in the seed alone; trials
    of the same layer and data set in the same flow; trials of the same data set in the same flow. In the latter two,
    the duration is scaled by the number of training examples.

    Args:
        records: of any suite and profile; those of failed trials are ignored.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._times: dict[str, list[float]] = {}
        for record in records:
            if record.status in COMPLETED and record.seconds is not None:
                with contextlib.suppress(KeyError, TypeError):  # written by a version with other settings
                    for key, work in _keys(record.trial):
                        self._times.setdefault(key, []).append(record.seconds / work)

    def seconds(self, trial: Trial) -> float | None:
        """Return the estimated duration of a trial; None without a similar trial."""
        for key, work in _keys(trial.model_dump(mode="json")):
            if key in self._times:
                return fmean(self._times[key]) * work
        return None


def _keys(trial: dict[str, Any]) -> list[tuple[str, float]]:
    """Return keys that similar trials share, the most similar first, each with the work by which to divide the time."""
    common = [trial["kind"], trial["device"], trial["threads"]]
    keys: list[tuple[list[Any], float]]
    if "training" in trial:
        examples = trial["training"]["steps"] * trial["training"]["batch_size"]
        column = [*common, trial["data"]["label"], trial["flow"]]
        keys = [
            ([*column, trial["data"], trial["layer"], trial["training"]], 1.0),
            ([*column, trial["layer"]["row"]], examples),
            (column, examples),
        ]
    elif "layers" in trial:
        point = [*common, [layer["row"] for layer in trial["layers"]], trial["timing"]]
        keys = [([*point, trial["shape"], trial["batch"]], 1.0), ([*point, trial["sweep"]], 1.0)]
    else:
        same = [trial[name] for name in ("flow", "shape", "examine") if name in trial]
        keys = [([*common, *same, trial["layer"]["row"]], 1.0), (common, 1.0)]
    return [(json.dumps(key, sort_keys=True), work) for key, work in keys]
