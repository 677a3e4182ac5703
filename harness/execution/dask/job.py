"""A trial on a Dask worker: what is sent, the process that runs it there, and the bytes that come back.

    python -m harness.execution.dask.job FOLDER

runs the trial in the folder of `harness.execution.dask.worker.run_trial`, checks source and data before, and writes
what comes back to the file `outcome`: one line of JSON (`Returned`), then the files of the trial in its order. It ends
with its standard input. A worker may belong to another user: the command takes a record of the trial that it has sent,
the files beside it, and no more.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from harness.core.errors import DataError, DataMissing, UserError
from harness.core.explain import explain
from harness.core.files import RECORD, SOURCE, read_file, write_atomically
from harness.core.provenance.sources import changes
from harness.core.records import Record, parse_record, read_record, remove_old_arrays
from harness.core.run_options import RunOptions
from harness.core.settings import Settings
from harness.core.texts import LONGEST, first_few, message_of
from harness.core.third_party import followed, is_third_party
from harness.core.trial import AnyTrial, Trial
from harness.execution.agenda import CHANGES
from harness.execution.dask.worker import OUTCOME, failed
from harness.execution.data import data_root
from harness.execution.folder import writing
from harness.execution.local.process import start_trial_server
from harness.execution.outcome import RunProvenance, record_path
from harness.execution.remote import end_in_order, run_trial

FILE = "job.json"
HEAD = 1 << 16  # bytes of the line of JSON
LARGEST = {"records": RECORD, "weights": 1 << 31, "logs": 1 << 24, "source": 1 << 24}  # bytes of a file, by folder
INSTALL = "install the same version of invertbench, with the same packages, for the command and its workers"
HINT = "a worker's data root is its $INVERTBENCH_DATA, or else that of the command"


class Job(Settings):
    """A trial, and what must be the same for it on the worker.

    Attributes:
        sources: digests of the source that can change the result.
    """

    trial: AnyTrial
    sources: dict[str, str]
    run_options: RunOptions


def files_of(job: Job, out: Path) -> dict[str, bytes]:
    """Return the files that a worker needs: name below the folder of the job -> content.

    Raises:
        UserError: a third-party file is outside of the working directory.
    """
    files = {FILE: job.model_dump_json().encode()}
    for name, record in _records_before(job.trial, out).items():
        files[f"run/records/{name}.json"] = record
    here = Path.cwd().resolve()
    named = [layer.layer for layer in job.trial.layers_under_test] + [data.name for data in job.trial.data_sets]
    for spec in filter(is_third_party, dict.fromkeys(named)):
        place = Path(spec.rpartition(":")[0])
        if place.suffix == ".py" and place.is_absolute():
            raise UserError(
                f"{spec}: a worker receives third-party files that are in the working directory or below it; give the "
                f"command in {place.parent}, or in a folder above it"
            )
        for path in followed(spec).files:
            if path.is_relative_to(here):  # others must be on the worker, which checks their digests
                files[f"here/{path.relative_to(here).as_posix()}"] = read_file(path, SOURCE)
    return files


def _records_before(trial: Trial, out: Path) -> dict[str, bytes]:
    """Return the records of the trials that this one waits for, which may depend on some of these records."""
    contents: dict[str, bytes] = {}
    records: dict[str, Record] = {}
    while new := [early for early in trial.prerequisites(records) if early.id not in records]:
        count = len(records)
        for early in new:
            path = record_path(out, early)
            with contextlib.suppress(UserError, OSError):
                records[early.id], contents[early.id] = read_record(path), read_file(path, RECORD)
        if len(records) == count:
            break
    return contents


class Returned(Settings):
    """The line of JSON before the files of a trial.

    Attributes:
        fault: why the trial could not run there; empty if it has left its record.
        code: exit code of the command if no worker can run it.
        files: name below the folder of the run -> bytes.
    """

    fault: Annotated[str, Field(max_length=4 * LONGEST)] = ""
    code: Annotated[int, Field(ge=2, le=3)] = 2
    files: Annotated[dict[str, Annotated[int, Field(ge=0)]], Field(max_length=8)] = Field(default_factory=dict)


def packed(trial: Trial, run: Path) -> bytes:
    """Return the bytes for a trial that has left its record in the folder `run`; raise OSError for a larger file."""
    paths = [path for folder in LARGEST for path in sorted((run / folder).glob("*"))]
    files = {path.relative_to(run).as_posix(): path for path in paths if path.is_file()}
    contents = {name: read_file(path, LARGEST[path.parent.name]) for name, path in files.items() if _of(trial, name)}
    head = Returned(files={name: len(content) for name, content in contents.items()})
    return b"".join((head.model_dump_json().encode(), b"\n", *contents.values()))


def unpacked(content: object) -> tuple[Returned, dict[str, bytes]]:
    """Return the line and the files; raise ValueError if `content` has another form."""
    if not isinstance(content, bytes):
        raise ValueError("no bytes")
    end = content.find(b"\n", 0, HEAD)
    if end < 0:
        raise ValueError(f"no line of JSON in its first {HEAD:,} bytes")
    try:
        head = Returned.model_validate_json(content[:end])
    except ValidationError as error:
        raise ValueError(explain(error)[0].message) from error
    if sum(head.files.values()) != len(content) - end - 1:
        raise ValueError("not as many bytes as its line of JSON says")
    files, start = {}, end + 1
    for name, size in head.files.items():
        files[name] = content[start : start + size]
        start += size
    return head, files


def store(trial: Trial, files: dict[str, bytes], out: Path) -> Record:
    """Write the files that a trial has left on a worker, its record last; return the record.

    Raises:
        ValueError: there is no record of the trial, or another file; nothing is written.
        UserError: the folder cannot be written.
    """
    last = f"records/{record_path(out, trial).name}"
    for name, content in files.items():
        if not _of(trial, name) or len(content) > LARGEST[name.partition("/")[0]]:
            raise ValueError(f"{name!a:.200} with {len(content):,} bytes, which is no file of this trial")
    if last not in files:
        raise ValueError("no record")
    record = parse_record(files[last], trial.id, trial)
    arrays = None if record.arrays is None else files.get(f"records/{record.arrays}")
    if record.arrays is not None and (arrays is None or hashlib.sha256(arrays).hexdigest() not in record.arrays):
        raise ValueError("a record without its arrays")
    with writing(out):
        for name in sorted(files, key=lambda name: name == last):
            write_atomically(out / name, files[name])
        remove_old_arrays(out / "records", record)
    return record


def _of(trial: Trial, name: str) -> bool:
    """Return whether a trial leaves a file of this name for the command; others were sent with it."""
    mine = re.escape(trial.id)
    names = (
        rf"records/{mine}(\.[0-9a-f]{{64}}\.npz|\.json)|weights/{mine}\.pt|logs/{mine}\.log|source/[0-9a-f]{{16}}\.diff"
    )
    return re.fullmatch(names, name) is not None


def main(folder: Path) -> None:
    """Run the trial of a folder, and write the outcome."""
    end_in_order()
    threading.Thread(target=_end_with_worker, daemon=True).start()
    try:
        content = _run(folder)
    except (UserError, OSError) as error:  # an OSError of this process, such as of a full disk
        text = message_of(error, LONGEST).partition("; make room there")[0]  # a worker keeps no folder
        content = failed(text, code=3 if isinstance(error, (DataMissing, DataError)) else 2)
    (folder / OUTCOME).write_bytes(content)


def _run(folder: Path) -> bytes:
    from harness.planning.settle import resolve_device

    try:
        job = Job.model_validate_json(read_file(folder / FILE, RECORD))
    except ValidationError as error:
        raise UserError(f"the version of invertbench there is not that of the command; {INSTALL}") from error
    trial = job.trial
    # Both this process and that server import torch, so let them do it side by side.
    names = [data.name for data in trial.data_sets]
    start_trial_server({trial.kind}, names, kernels=trial.computes and trial.device == "cpu")
    run_options = replace(job.run_options, out=folder / "run", root=data_root(None) or job.run_options.root)
    provenance = RunProvenance(run_options.host)
    provenance.save(run_options.out)
    if differences := changes(job.sources, provenance.digests(trial)):
        raise UserError(f"the source there is not that of the command: {first_few(differences, CHANGES)}; {INSTALL}")
    resolve_device(trial.device)
    run_trial(trial, run_options, provenance, HINT, sys.stderr)
    return packed(trial, run_options.out)


def _end_with_worker() -> None:
    """End in order when the worker closes the standard input of this process, or has ended itself."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
