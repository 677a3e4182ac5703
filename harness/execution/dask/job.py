"""A trial as it is sent to a Dask worker, and the files that go with it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from harness.core.errors import UserError
from harness.core.files import RECORD, SOURCE, read_file
from harness.core.provenance.environment import package_version
from harness.core.provenance.sources import changes
from harness.core.records import Record, read_record
from harness.core.run_options import RunOptions
from harness.core.settings import DataRef, Settings
from harness.core.third_party import followed, is_third_party
from harness.core.trial import AnyTrial, Trial
from harness.datasets import find_dataset
from harness.execution.outcome import record_path

FILE = "job.json"
SENT = 8 << 20  # bytes of a file of data that is sent with each of its trials
SHOWN = 3  # changed files in a message
INSTALL = "install the same version of invertbench, with the same packages, for the command and its workers"


class Job(Settings):
    """A trial, and what must be the same for it on the worker.

    Attributes:
        version: of invertbench.
        sources: digests of the source that can change the result.
        data: folder of data on the worker, over its $INVERTBENCH_DATA.
    """

    version: str | None
    trial: AnyTrial
    sources: dict[str, str]
    run_options: RunOptions
    data: Path | None = None

    @classmethod
    def load(cls, folder: Path) -> Job:
        """Return the job of a folder; raise UserError if another version of invertbench has sent it."""
        content = read_file(folder / FILE, RECORD)
        there, here = json.loads(content)["version"], package_version("invertbench")
        if there != here:
            names = [version or "not installed (a checkout)" for version in (here, there)]
            raise UserError(f"invertbench is {names[0]} there, and {names[1]} for the command; {INSTALL}")
        return cls.model_validate_json(content)

    def check_sources(self, here: Mapping[str, str]) -> None:
        """Raise UserError if the source on this machine is not the command's."""
        if differences := changes(self.sources, here):
            more = f" and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
            raise UserError(
                f"the source there is not that of the command: {', '.join(differences[:SHOWN])}{more}; {INSTALL}"
            )


def files_of(job: Job, out: Path) -> dict[str, bytes]:
    """Return the files that a worker needs: name below the folder of the job -> content.

    Raises:
        UserError: a third-party file is outside of the working directory, or data beside the suite are too large.
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
    for data in job.trial.data_sets:
        files |= _beside_suite(data)
    return files


def _beside_suite(data: DataRef) -> dict[str, bytes]:
    """Return the files of a data set in the working directory or below it, whose names begin with "./"."""
    files = {}
    for option in find_dataset(data.name).paths:
        value = dict(data.options).get(option)
        if isinstance(value, str) and value.startswith("./"):
            try:
                files[f"here/{value[2:]}"] = read_file(Path(value), SENT)
            except OSError as error:
                raise UserError(
                    f"{data.label}: {option}: {value}: cannot be sent to a worker ({error.strerror}); put it into the "
                    "data root of the command and of each worker, not beside the suite"
                ) from error
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
