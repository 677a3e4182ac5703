"""A run for TensorBoard: a folder of event files for each trial, with its curves, measures and settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from harness.core.errors import UserError
from harness.core.files import checked_name
from harness.core.records import Record, verdict
from harness.core.trial import Trial
from harness.reporting.compare.measure import flat
from harness.reporting.report import ReportedResults
from harness.reporting.tables.selection import Selection
from harness.reporting.written import refuse_links

FOLDER = "tensorboard"


def write(results: ReportedResults, folder: Path, selection: Selection) -> list[Path]:
    """Write `tensorboard/<trial id>/` for each trial that has a record.

    Scalars are the curves by training step, `curves/validation`, and the final measures, `measures/bits_per_dim`; those
    of a trial of several layers have layer and operation in their tags. Hyperparameters are the settings by path,
    `training.learning_rate`, with those that the tuning chose, and `status`.
    """
    selection.refuse("tensorboard")
    try:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams
    except ImportError as error:
        raise UserError(
            f"--to tensorboard: {error}; install it: pip install tensorboard, or 'invertbench[tensorboard]'"
        ) from error
    target = folder / FOLDER
    refuse_links(folder, target)
    for path in target.glob("*/events.out.tfevents.*"):  # TensorBoard would show the events of two exports as one
        path.unlink()
    for trial in results.plan.trials:
        record = results.records.get(trial.id)
        if record is None:
            continue
        begin = datetime.fromisoformat(record.started).timestamp() if record.started else 0.0
        refuse_links(folder, target / checked_name(trial.id))
        with SummaryWriter(str(target / trial.id)) as writer:
            for name, step, seconds, value in points(record):
                writer.add_scalar(f"curves/{name}", value, step, walltime=begin + seconds)
            for tag, value in measures(trial, record).items():
                writer.add_scalar(tag, value)
            settings = {
                name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
                for name, value in flat(trial.used(record).model_dump(mode="json"))
                if value is not None
            }
            # Not `add_hparams`: it also lists the names of this trial's settings, and TensorBoard shows no others.
            for summary in hparams(settings | {"status": verdict(record)}, {})[1:]:
                writer.file_writer.add_summary(summary)
    return [target]


def points(record: Record) -> Iterator[tuple[str, int, float, float]]:
    """Yield curve, step, seconds of training and value of each finite point of the curves."""
    steps = record.curves.get("step", [])
    seconds = record.curves.get("seconds", [0.0] * len(steps))
    for name in sorted(record.curves.keys() - {"step", "seconds"}):
        for step, after, value in zip(steps, seconds, record.curves[name], strict=False):
            if step is not None and value is not None:
                yield name, int(step), after or 0.0, value


def measures(trial: Trial, record: Record) -> dict[str, float]:
    """Return the numbers in the rows of a record, by tag."""
    numbers = {}
    for row in record.rows:
        about = [str(row[name]) for name in trial.cases[0]]
        for name, value in row.items():
            if isinstance(value, int | float):
                numbers["/".join(("measures", *about, name))] = float(value)
    return numbers
