"""Estimate the duration of a runtime trial: call every operation of every layer a few times, and add up the rounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.core.records import Record
from harness.core.settings import Progress
from harness.kinds.runtime.run import run as run_trial
from harness.kinds.runtime.trial import RuntimeTrial
from harness.timing.settings import TimingSettings
from harness.timing.timing import LEAST_ROUNDS, SLOW

FEW_CALLS = TimingSettings(warmup=1, rounds=1, min_sample_ms=1e-6)


def run(trial: RuntimeTrial, root: Path | None, out: Path, progress: Progress, checkpoints: object = None) -> Record:
    """Return a record without measures, whose curves are the milliseconds of each layer, by operation."""
    record = run_trial(trial.model_copy(update={"timing": FEW_CALLS}), root, out, progress)
    curves: dict[str, list[float | None]] = {
        operation: [row.get("median_ms") for row in record.rows if row["operation"] == operation]
        for operation in trial.operations
    }
    return replace(record, id=trial.id, trial=trial.model_dump(mode="json"), rows=[], curves=curves)


def seconds(trial: RuntimeTrial, record: Record) -> float:
    """Return the estimated duration of a trial of the same layers at the same point, from the record of a probe."""
    settings, total = trial.timing, record.seconds or 0.0
    for operation in trial.operations:
        calls = [time / 1e3 for time in record.curves[operation] if time is not None]
        samples = [max(call, settings.min_sample_ms / 1e3) + (call if call < SLOW else 0.0) for call in calls]
        total += max(settings.warmup * sum(calls), settings.warmup_seconds if calls else 0.0)
        total += min(settings.rounds * sum(samples), max(settings.budget_seconds, LEAST_ROUNDS * sum(samples)))
    return total
