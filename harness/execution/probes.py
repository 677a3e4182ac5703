"""Probes of trials that have never run here: a few steps of each cell of a plan, in a separate process.

A cell is a place in the tables with its layers; its seeds and the candidates of its tuning are taken to cost the same.
Probes run as trials do, under the same supervisor, in a folder that is removed afterwards. `probe.py` in the folder of
a kind measures a trial and estimates its time; the memory is that of the process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.discovery import sibling
from harness.core.errors import UserError
from harness.core.provenance.machine import available_memory, memory_watched
from harness.core.records import Record, read_record
from harness.core.run_options import RunOptions
from harness.core.settings import DataRef, Progress
from harness.core.trial import Trial
from harness.execution.agenda import Entry, Probe
from harness.execution.data import check_data
from harness.execution.local.memory import most_held
from harness.execution.local.slots import Slots
from harness.execution.local.supervisor import run_trials
from harness.execution.outcome import record_path
from harness.execution.progress import make_reporter

if TYPE_CHECKING:
    from harness.training.checkpoints import Checkpoints

TIMEOUT = 1200.0  # seconds of one probe
NO_DATA = "data missing"
MEMORY = "memory"  # the curve of a probe's record that holds its memory

Cell = tuple[Any, ...]


def probe(entries: Sequence[Entry], root: Path | None, memory: int | None, slots: Slots) -> list[Entry]:
    """Return the entries with time and memory from probes, where the kind of the trial offers them.

    Args:
        memory: bytes that a probe may hold; None: as many as are free now, as trials of unknown size could leave the
            system without any.
    """
    cells: dict[Cell, list[Trial]] = {}
    for entry in entries:
        if sibling(type(entry.trial), "probe") is not None:
            cells.setdefault(_cell(entry.trial), []).append(entry.trial)
    # The trials that others wait for are candidates of a tuning, each with other settings.
    chosen = {cell: max(trials, key=lambda trial: trial.stage) for cell, trials in cells.items()}
    available = _data_available([*chosen.values()], root)
    ready = [trial for trial in chosen.values() if available[trial.data_sets]]
    if memory is None and memory_watched():
        memory = available_memory()
    with tempfile.TemporaryDirectory(prefix="invertbench-probe-") as folder:
        run_options = RunOptions(out=Path(folder), root=root, timeout=TIMEOUT, memory=memory)
        with make_reporter(len(ready)) as reporter:
            run_trials(ready, run_options, slots, reporter, work=execute)
        records = {trial.id: read_record(record_path(Path(folder), trial)) for trial in ready}
    estimated = []
    for entry in entries:
        trial = chosen.get(_cell(entry.trial))
        if trial is not None and sibling(type(entry.trial), "probe") is not None:
            outcome = _outcome(entry.trial, records.get(trial.id))
            entry = replace(entry, probe=outcome, seconds=outcome.seconds)
        estimated.append(entry)
    return estimated


def _cell(trial: Trial) -> Cell:
    return trial.suite, trial.place, trial.rows, trial.device, trial.threads


def _data_available(trials: Sequence[Trial], root: Path | None) -> dict[tuple[DataRef, ...], bool]:
    """Return the data sets of each trial -> whether a trial can read them."""
    available = {}
    for trial in {trial.data_sets: trial for trial in trials}.values():
        try:
            check_data(trial.data_sets, root, offline=True)
            available[trial.data_sets] = True
        except UserError:  # `plan` prints what is missing
            available[trial.data_sets] = False
    return available


def _outcome(trial: Trial, record: Record | None) -> Probe:
    if record is None:
        return Probe(fault=NO_DATA)
    if record.status != "ok":
        ended = record.seconds if record.status == "unsupported" else None
        return Probe(ended, None, f"{record.status}: {' '.join((record.reason or '').split())}")
    module = sibling(type(trial), "probe")
    assert module is not None
    return Probe(module.seconds(trial, record), int(record.curves[MEMORY][0] or 0) or None)


def execute(trial: Trial, run_options: RunOptions, provenance: Mapping[str, Any], progress: Progress) -> None:
    """Probe one trial, in its process."""
    import harness.execution.trial

    harness.execution.trial.execute(trial, run_options, provenance, progress, run=_measured)


def _measured(trial: Any, run_options: RunOptions, progress: Progress, checkpoints: Checkpoints) -> Record:
    import torch

    module = sibling(type(trial), "probe")
    assert module is not None
    record: Record = module.run(trial, run_options.root, run_options.out, progress)
    memory = torch.cuda.max_memory_reserved() if trial.device == "cuda" else most_held()
    return replace(record, curves=record.curves | {MEMORY: [float(memory)]})
