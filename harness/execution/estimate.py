"""How long a trial will take, from how long trials like it took."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from statistics import fmean
from typing import Any

from harness.core.records import Record
from harness.core.settings import DensityTrial, RuntimeTrial, Trial

TOLD = ("ok", "unsupported", "diverged")  # the statuses of trials that came to their own end


class Experience:
    """Times of finished trials.

    The nearest of these tells of a trial: others that differ in the seed alone; others of its row and column in
    the same flow; others of its column in the same flow. Of the latter two, the time goes with the number of
    points that are trained on.

    Args:
        records: of any suite and profile; those of failed trials are passed over.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._times: dict[str, list[float]] = {}
        for record in records:
            if record.status in TOLD and record.seconds is not None:
                with contextlib.suppress(KeyError, TypeError):  # of a version with other settings
                    for key, work in _keys(record.trial):
                        self._times.setdefault(key, []).append(record.seconds / work)

    def seconds(self, trial: Trial) -> float | None:
        """The time that this trial is likely to take; None where nothing tells."""
        for key, work in _keys(trial.model_dump(mode="json")):
            if key in self._times:
                return fmean(self._times[key]) * work
        return None


def _keys(trial: dict[str, Any]) -> list[tuple[str, float]]:
    """What trials like this one have in common, nearest first, each with the work that its time is divided by."""
    common = [trial["kind"], trial["device"], trial["threads"]]
    if trial["kind"] == DensityTrial.model_fields["kind"].default:
        points = trial["training"]["steps"] * trial["training"]["batch_size"]
        column = [*common, trial["data"]["label"], trial["flow"]]
        keys = [
            ([*column, trial["data"], trial["layer"], trial["training"]], 1.0),
            ([*column, "row", trial["layer"]["row"]], points),
            ([*column, "any row"], points),
        ]
    elif trial["kind"] == RuntimeTrial.model_fields["kind"].default:
        layers = [layer["row"] for layer in trial["layers"]]
        keys = [
            ([*common, trial["shape"], trial["batch"], layers, trial["timing"]], 1.0),
            ([*common, trial["sweep"], layers, trial["timing"]], 1.0),
        ]
    else:
        same = [trial[name] for name in ("flow", "shape", "examine") if name in trial]
        keys = [([*common, *same, trial["layer"]["row"]], 1.0), (common, 1.0)]
    return [(json.dumps(key, sort_keys=True), work) for key, work in keys]
