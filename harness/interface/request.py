"""The trials that the arguments of `run` and `plan` ask for, and the folder of their data."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.archive import StoredRecords, read_records
from harness.core.errors import DataMissing, UserError
from harness.core.settings import DataRef
from harness.core.texts import control_fault
from harness.core.third_party import is_third_party
from harness.execution.agenda import AgendaEntry, Digests, agenda
from harness.execution.executor import Executor, check_section, executor_class
from harness.interface.options import Arguments
from harness.planning.plan import Plan
from harness.planning.settle import Checksums, check_suite, settle
from harness.planning.suite import Source, read_suite

Check = Callable[[Sequence[DataRef], Collection[DataRef]], Checksums]
"""See `make_request`."""


@dataclass(frozen=True)
class Request:
    """The trials that a call or a command asks for."""

    plan: Plan  # the trials of the profile that `--only` selects
    folder: Path  # OUT/<suite>
    executor: Executor
    options: Arguments

    def records(self) -> StoredRecords:
        """Return the records in the folder now, with those of other trials."""
        return read_records(self.folder, self.plan.trials, others=True)

    def entries(self, digests: Digests) -> list[AgendaEntry]:
        """Return the trials with their states now (see `agenda`)."""
        retry_failed, stale = self.options.retry_failed, self.options.stale
        return agenda(self.plan, self.folder, digests, self.records(), retry_failed=retry_failed, stale=stale)


def make_request(
    source: Source, options: Arguments, check: Check, tell: Callable[[str], object], prepare: bool = False
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
    from harness.planning.overrides import run_command

    arguments = {
        "--only": options.only,
        "--set": options.settings,
        "--layer": options.layers,
        "--dataset": options.datasets,
    }
    for option, fault in ((name, control_fault(text)) for name, texts in arguments.items() for text in texts):
        if fault is not None:
            raise UserError(f"{option}: {fault}")
    suite = read_suite(source, data=data_root(options.data))
    check_section(suite)
    executor = executor_class(options.executor)(options.jobs, suite.cluster, options.cluster)
    if prepare and options.profile in suite.profile_names:
        executor.prepare({part.kind for part in suite.parts.values()}, suite.data_names(options.profile))
    added = [(name, suite.origin.folder) for name in filter(is_third_party, options.layers)]
    try_imports([*suite.third_party, *added])
    changes = {name: getattr(options, name) for name in ("only", "settings", "layers", "datasets", "seeds")}
    device = executor.device(options.device)
    check_suite(suite, but=options.profile)
    settled = settle(suite, options.profile, device, **changes, here=executor.here, cores=executor.cores)
    folder = options.out / suite.suite
    checksums: dict[DataRef, str | None] = {}
    with contextlib.suppress(UserError):  # those of the last run, for data sets that are not checked again now
        trials = Plan.load(folder).trials
        checksums = {data.arrays: data.checksum for trial in trials for data in trial.data_sets}
    checked = check(settled.data, settled.optional)
    for key, checksum in checked.items():
        if checksums.get(key, checksum) != checksum:
            tell(f"{key.name}: its data have changed since the last run here, so trials on them are others")
    plan, selected = settled.plan({**checksums, **checked})
    optional = [data for data in settled.data if data in settled.optional]
    left_out = list(dict.fromkeys(data.label for data in optional if checked and data.arrays not in checked))
    if left_out:
        selected = tuple(trial for trial in selected if trial.column not in left_out)
        remark = f"Left out, as their files are missing: {', '.join(left_out)}"
        plan = plan.model_copy(update={"remark": " ".join(filter(None, [plan.remark, remark]))})
    if options.only or left_out:
        plan = plan.limited(selected)
    if not isinstance(source, Mapping):  # no command makes the plan of a mapping
        given = {
            "--profile": options.profile,
            "--device": plan.device,
            "--only": options.only,
            "--seeds": None if options.seeds is None else str(options.seeds),
            "--data": None if options.data is None else "ROOT",
            "--set": options.settings,
            "--layer": options.layers,
            "--dataset": options.datasets,
            "--unchecked": "" if getattr(options, "unchecked", False) else None,
        }
        plan = plan.model_copy(update={"command": run_command(str(source), given)})
    return Request(plan, folder, executor, options)


def data_root(option: Path | None) -> Path | None:
    """Return `data`, else $INVERTBENCH_DATA, else None; raise DataMissing if a named root does not exist."""
    variable = os.environ.get("INVERTBENCH_DATA")
    root = option or (Path(variable) if variable else None)
    if root is not None and not root.is_dir():
        name = "--data" if option else "$INVERTBENCH_DATA"
        raise DataMissing(f"{name} {root}: no such folder; give the folder that holds the data sets")
    return root.resolve() if root else None
