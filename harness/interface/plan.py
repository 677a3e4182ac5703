"""`harness.plan` and `harness.validate`: the trials of a suite, the state of each, and what a run would do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SkipValidation
from tabulate import tabulate

from harness.checking.isolated import try_imports
from harness.core.arguments import check, checked, taking
from harness.core.errors import DataError, DataMissing, UserError
from harness.core.provenance.sources import Sources
from harness.core.run_options import shown_seconds
from harness.core.settings import DataRef
from harness.core.third_party import is_third_party
from harness.execution.agenda import AgendaEntry, agenda, outlook
from harness.execution.data import check_data, examine_data, raise_faults
from harness.execution.executor import Executor, check_section, executor_class
from harness.interface.options import Root, RunArguments
from harness.planning.plan import Plan
from harness.planning.settle import CHANGES, check_suite, settle
from harness.planning.suite import Source, read_suite


@dataclass(frozen=True, repr=False)
class Outlook:
    """The trials that a run would have; printed, they are a table with the counts and the time that is left.

    Attributes:
        plan: the trials and what a report of them needs.
        folder: of the run, `out/<suite>`.
        entries: every trial that is due with its state in the folder, and its estimated seconds.
        remarks: counts, the time that is left, and remarks on the data, also why a run would stop because of them.
    """

    plan: Plan
    folder: Path
    entries: tuple[AgendaEntry, ...]
    remarks: tuple[str, ...]

    def __repr__(self) -> str:
        lines = [("id", "kind", "place", "layer", "repetition", "state", "time")]
        for trial, entry in ((entry.trial, entry) for entry in self.entries):
            time = "" if not entry.runs else "?" if entry.seconds is None else shown_seconds(entry.seconds)
            rows = ", ".join(trial.rows)
            lines.append((trial.id, trial.kind, trial.place, rows, trial.repeat, entry.text(), time))
        return "\n".join([tabulate(lines, headers="firstrow", disable_numparse=True), "", *self.remarks])


@taking(RunArguments)
def plan(suite: Source, **arguments: Any) -> Outlook:
    """Return the trials that `harness.run` would have with these arguments, and the state of each; nothing is trained.

    Args:
        suite: as of `harness.run`.
        **arguments: see below.

    Raises:
        UserError: an argument or the suite (SuiteError) is wrong. Missing data are remarks.
    """
    options, remarks = check(RunArguments, arguments), list[str]()
    plan, folder, executor = make_plan(suite, options, remarks)
    entries = agenda(plan, folder, Sources().of, retry_failed=options.retry_failed, stale=options.stale)
    lines = outlook(plan, entries, executor.at_once, options.stale)
    return Outlook(plan, folder, tuple(entries), (*lines, *remarks))


@checked
def validate(suite: SkipValidation[Source], *, profile: str | None = None, data: Root = None) -> dict[str, Plan]:
    """Check a suite and the data that are there, and return the plan of each profile; nothing runs.

    Missing data are a fault if `data` names their folder and a run would not leave them out, else a printed remark: a
    suite is right on any machine.

    Args:
        suite: as of `harness.run`.
        profile: only this one; by default all.
        data: the folder of the data sets; by default $INVERTBENCH_DATA.

    Raises:
        SuiteError: the suite is wrong, with every fault and its place.
        UserError: data are missing (DataMissing) or wrong.
    """
    root = data_root(data)
    read = read_suite(suite, data=root)
    check_section(read)
    try_imports(read.third_party)
    check_suite(read, shapes=profile is None)
    settled = {name: settle(read, name, "cpu") for name in (read.profile_names if profile is None else [profile])}
    every = [reference for of_profile in settled.values() for reference in of_profile.data]
    needed = {*every}.difference(*(of_profile.optional for of_profile in settled.values()))
    _, faults = examine_data(every, root, offline=True, tell=print)
    missing = [key for key, fault in faults.items() if isinstance(fault, DataMissing) and not (data and key in needed)]
    for line in dict.fromkeys(f"note: not here, so not checked: {faults.pop(key)}" for key in missing):
        print(line)
    raise_faults(faults.values())
    return {name: of_profile.plan().plan for name, of_profile in settled.items()}


def make_plan(source: Source, options: RunArguments, remarks: list[str] | None = None) -> tuple[Plan, Path, Executor]:
    """Return the trials that `--only` selects, the folder OUT/<suite>, and the executor that runs them.

    `remarks` takes the remarks on data, and why a run would stop because of them. Without it they are told or raised,
    and the executor begins its preparations, as the trials will run.
    """
    root, tell = data_root(options.data), options.tell if remarks is None else remarks.append
    suite = read_suite(source, data=root)
    check_section(suite)
    executor = executor_class(options.executor)(options.jobs, suite.cluster, options.cluster)
    if remarks is None and options.profile in suite.profile_names:
        names = [name for part in suite.parts.values() for name in part.data_names(options.profile)]
        executor.prepare({part.kind for part in suite.parts.values()}, names)
    added = [(name, suite.origin.folder) for name in filter(is_third_party, options.layers)]
    try_imports([*suite.third_party, *added])
    changes = {name: getattr(options, name) for name in ("only", *CHANGES)}
    device, here, cores = executor.device(options.device), executor.here, executor.cores
    settled = settle(suite, options.profile, device, here=here, cores=cores, **changes)
    folder, before = options.out / suite.suite, dict[DataRef, str | None]()
    with contextlib.suppress(UserError):  # there may be no last run
        before = {data.arrays: data.checksum for trial in Plan.load(folder).trials for data in trial.data_sets}
    checksums, left_out = dict[DataRef, str | None](), dict[str, None]()
    try:
        checksums = check_data(settled.data, root, options.offline or remarks is not None, tell, settled.optional)
        left_out = dict.fromkeys(data.label for data in settled.data if data.arrays not in checksums)
    except (DataMissing, DataError) as error:
        if remarks is None:
            raise
        remarks.append(f"\na run would stop, because of its data:\n{error}")
    for key, checksum in checksums.items():
        if before.get(key, checksum) != checksum:
            tell(f"{key.name}: its data have changed since the last run here, so trials on them are others")
    plan, selected = settled.plan({**before, **checksums})  # those of the last run, for data that are not checked now
    if options.only or left_out:
        plan = plan.limited([trial for trial in selected if trial.column not in left_out])
        left = f"{plan.remark} Left out, as their files are missing: {', '.join(left_out)}".strip()
        plan = plan.model_copy(update={"remark": left if left_out else plan.remark})
    if not isinstance(source, Mapping):  # no command makes the plan of a mapping
        plan = plan.model_copy(update={"command": options.command(str(source), plan.device)})
    return plan, folder, executor


def data_root(option: Path | None) -> Path | None:
    """Return `data`, else $INVERTBENCH_DATA, else None; raise DataMissing if a named root does not exist."""
    variable = os.environ.get("INVERTBENCH_DATA")
    name, root = ("--data", option) if option or not variable else ("$INVERTBENCH_DATA", Path(variable))
    if root is not None and not root.is_dir():
        raise DataMissing(f"{name} {root}: no such folder; give the folder that holds the data sets")
    return root.resolve() if root else None
