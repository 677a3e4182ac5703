"""The trials that the arguments of `run` and `plan` ask for, and the folder of their data."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.core.archive import RecordFolder
from harness.core.errors import DataMissing, UserError
from harness.core.settings import DataRef
from harness.core.third_party import third_party_specs
from harness.execution.agenda import AgendaEntry, Digests, agenda
from harness.execution.executor import Executor, check_section, executor_class
from harness.interface.options import Arguments
from harness.planning.plan import Plan
from harness.planning.settle import CHANGES, Checksums, settle
from harness.planning.suite import Source, read_suite


@dataclass(frozen=True)
class Request:
    """The trials that a call or a command asks for."""

    plan: Plan  # the trials of the profile that `--only` selects
    folder: Path  # OUT/<suite>
    executor: Executor
    options: Arguments

    @cached_property
    def records(self) -> RecordFolder:
        """The folder's records; each is parsed again only if its file has changed."""
        return RecordFolder(self.folder)

    def entries(self, digests: Digests) -> list[AgendaEntry]:
        """Return the trials with their states now (see `agenda`)."""
        stored = self.records.read(self.plan.trials)
        retry_failed, stale = self.options.retry_failed, self.options.stale
        return agenda(self.plan, self.folder, digests, stored, retry_failed=retry_failed, stale=stale)


def make_request(
    source: Source,
    options: Arguments,
    check: Callable[[Sequence[DataRef], Collection[DataRef]], Checksums],
    tell: Callable[[str], object],
    prepare: bool = False,
) -> Request:
    """Return the request that the options describe; raise a UserError if they cannot be met.

    Args:
        source: the suite.
        check: takes the data that trials read, and those of them that are left out where they are missing; returns the
            checksums of those that are there, by `DataRef.arrays`, or none if it has not looked.
        tell: takes a line for each data set that has changed since the last run.
        prepare: let the executor begin its preparations, as the trials will run.
    """
    from harness.checking.isolated import try_imports

    suite = read_suite(source, data=data_root(options.data))
    check_section(suite)
    executor = executor_class(options.executor)(options.jobs, suite.cluster, options.cluster)
    if prepare and options.profile in suite.profile_names:
        executor.prepare({part.kind for part in suite.parts.values()}, suite.data_names(options.profile))
    specs = [spec for name in options.layers for spec in third_party_specs("layer", name)]
    try_imports([*suite.third_party, *((spec, suite.origin.folder) for spec in specs)])
    changes = {name: getattr(options, name) for name in ("only", *CHANGES)}
    device, here, cores = executor.device(options.device), executor.here, executor.cores
    settled = settle(suite, options.profile, device, here=here, cores=cores, **changes)
    folder, before = options.out / suite.suite, dict[DataRef, str | None]()
    with contextlib.suppress(UserError):  # there may be no last run
        before = {data.arrays: data.checksum for trial in Plan.load(folder).trials for data in trial.data_sets}
    checksums = check(settled.data, settled.optional)
    for key, checksum in checksums.items():
        if before.get(key, checksum) != checksum:
            tell(f"{key.name}: its data have changed since the last run here, so trials on them are others")
    plan, selected = settled.plan({**before, **checksums})  # those of the last run, for data that are not checked now
    missing = [data for data in settled.data if checksums and data.arrays not in checksums]
    if left_out := list(dict.fromkeys(data.label for data in missing if data in settled.optional)):
        selected = tuple(trial for trial in selected if trial.column not in left_out)
        remark = f"{plan.remark} Left out, as their files are missing: {', '.join(left_out)}"
        plan = plan.model_copy(update={"remark": remark.strip()})
    if options.only or left_out:
        plan = plan.limited(selected)
    if not isinstance(source, Mapping):  # no command makes the plan of a mapping
        plan = plan.model_copy(update={"command": options.command(str(source), plan.device)})
    return Request(plan, folder, executor, options)


def data_root(option: Path | None) -> Path | None:
    """Return `data`, else $INVERTBENCH_DATA, else None; raise DataMissing if a named root does not exist."""
    variable = os.environ.get("INVERTBENCH_DATA")
    root = option or (Path(variable) if variable else None)
    if root is not None and not root.is_dir():
        name = "--data" if option else "$INVERTBENCH_DATA"
        raise DataMissing(f"{name} {root}: no such folder; give the folder that holds the data sets")
    return root.resolve() if root else None
