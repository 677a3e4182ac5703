"""`harness.plan` and `harness.validate`: the trials of a suite, and what a run would do; and the arguments of runs.

Settings, selections and resources reach the planning as the texts of the command line, such as "training.steps=100", so
that the plan can state the command that makes it again.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, SkipValidation
from tabulate import tabulate

from harness.checking.isolated import try_imports
from harness.core.arguments import Option, Place, Whole, check, checked, optional, path, read_whole, rule, taking
from harness.core.errors import DataError, DataMissing, UserError
from harness.core.provenance.sources import Sources
from harness.core.run_options import CHECKPOINT_SECONDS, Stale, parse_bytes, parse_seconds, parse_timeout, shown_seconds
from harness.core.settings import DataRef, Flag, Settings
from harness.core.texts import control_fault
from harness.core.third_party import is_third_party
from harness.execution.agenda import AgendaEntry, agenda, outlook
from harness.execution.data import check_data, data_root, examine_data, raise_faults
from harness.execution.executor import Executor, check_section, executor_class, executor_names
from harness.planning.plan import GivenDevice, Plan
from harness.planning.settle import CHANGES, check_suite, settle
from harness.planning.suite import Source, read_suite
from harness.planning.suite_model import ProfileName

MERGED = Path("reports/merged")  # of the results of merged runs and of archives, in a folder named after the suite


def texts(value: Any) -> Any:
    """Return several values or one as a tuple; raise ValueError if a text has a control character."""
    several = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for fault in filter(None, (control_fault(text) for text in several if isinstance(text, str))):
        raise ValueError(fault)
    return several


def pairs(form: Callable[[Any], str], value: Any) -> Any:
    """Return the same; of a mapping `key=value` for each key, with the form of a value."""
    if not isinstance(value, Mapping):
        return texts(value)
    try:
        return tuple(f"{key}={form(inner)}" if isinstance(key, str) else key for key, inner in value.items())
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a suite cannot state a value of this mapping ({error})") from error


Strings = tuple[Annotated[str, Field(min_length=1)], ...]
Given = str | Sequence[str] | Mapping[str, Any]
Texts = Annotated[Strings, rule(texts, str | Sequence[str])]
Selection = Annotated[Strings, rule(partial(pairs, lambda value: ",".join(map(str, texts(value)))), Given)]
Values = Annotated[Strings, rule(partial(pairs, partial(json.dumps, ensure_ascii=False, allow_nan=False)), Given)]
Terms = Literal["steps", "seconds", "parameters", "width"]  # measures at which likelihoods can be compared
EqualTerms = Annotated[tuple[Terms, ...], rule(texts, str | Sequence[str])]
ExecutorName: Any = Literal[tuple(executor_names())]
Root = Annotated[Path | None, optional(path, str | Path), Option("ROOT")]  # of the data sets


class RunArguments(Settings):
    """The arguments of `harness.run` and `harness.plan`.

    Attributes:
        profile: size of the suite.
        out: folder of the reports; that of this suite is below it.
        device: where trials compute.
        data: folder of the data sets; without it, $INVERTBENCH_DATA.
        jobs: trials at once; by default as many as there is room for.
        executor: executor of the trials.
        cluster: a setting of slurm or dask, such as partition=gpu or address=tcp://HOST:PORT; in Python also a mapping.
        retry_failed: also run failed trials again; by default only interrupted ones.
        stale: use records of changed source code, or run their trials again.
        seeds: number of seeds, in place of the profile's.
        only: run only a layer, dataset, seed, repetition or claim, such as layer=butterfly; in Python also a mapping.
        settings: change a setting, training.steps=100 or layers.butterfly.options.levels=3; in Python also a mapping.
        layers: add a third-party layer as a row, FILE.py:CLASS.
        datasets: add a file or folder as a data set, LABEL=FILE, or with options of the data set
            LABEL=FILE:option=value,option=value.
        offline: download nothing; use the data that are present.
        timeout: end a trial after this time, such as 90 (seconds) or 2h.
        memory: end a trial that uses more memory, such as 4GiB.
        checkpoint: interval between checkpoints of training, in seconds or such as 5min.
        fail_fast: stop the run at the first trial that fails.
        unchecked: run third-party layers without check-layer.
        host: name this machine in records.
        quiet: print only failures, and with the command a last line.
    """

    profile: Annotated[str, Option(choices=get_args(ProfileName))] = "quick"
    out: Annotated[Place, Option("DIR")] = Path("reports")
    device: GivenDevice = "auto"
    data: Root = None
    jobs: Whole = None
    executor: ExecutorName = "local"
    cluster: Annotated[Values, Option("KEY=VALUE")] = ()
    retry_failed: Flag = False
    stale: Stale = "keep"
    seeds: Whole = None
    only: Annotated[Selection, Option("KEY=VALUE")] = ()
    settings: Annotated[Values, Option("PATH=VALUE", ("--set",))] = ()
    layers: Annotated[Texts, Option("FILE.py:CLASS", ("--layer",))] = ()
    datasets: Annotated[Texts, Option("LABEL=FILE[:OPTIONS]", ("--dataset",))] = ()
    offline: Flag = False
    timeout: Annotated[float | None, optional(parse_timeout, float | str), Option("TIME")] = None
    memory: Annotated[int | None, optional(parse_bytes, int | str), Option("SIZE")] = None
    checkpoint: Annotated[float, rule(parse_seconds, float | str), Option("TIME")] = CHECKPOINT_SECONDS
    fail_fast: Flag = False
    unchecked: Flag = False
    host: Flag = False
    quiet: Annotated[Flag, Option(flags=("-q", "--quiet"))] = False

    def tell(self, line: str) -> None:
        """Print a line, unless the run is quiet."""
        if not self.quiet:
            print(line, flush=True)

    def command(self, suite: str, device: str) -> str:
        """Return the command that makes the same plan again, for a report: without folders of this machine."""
        here = partial(re.sub, r"^([^=/]*=)?/.*/", r"\1")
        stated: dict[str, Iterable[object]] = {"profile": [self.profile], "device": [device]}
        stated |= {"only": self.only, "set": self.settings}
        stated |= {"layer": map(here, self.layers), "dataset": map(here, self.datasets)}
        stated |= {"seeds": [self.seeds] if self.seeds else [], "data": ["ROOT"] if self.data else []}
        words = [word for name, values in stated.items() for value in values for word in (f"--{name}", str(value))]
        return shlex.join(["python", "-m", "harness", "run", here(suite), *words, *["--unchecked"] * self.unchecked])


class ReplicateArguments(RunArguments):
    """The arguments of `harness.replicate`.

    Attributes:
        draws: number of draws.
    """

    draws: Annotated[int, Field(ge=2, le=1000, strict=True), Option("N", read=read_whole)] = 5


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
            layers = ", ".join(trial.rows)
            lines.append((trial.id, trial.kind, trial.place, layers, trial.repeat, entry.text(), time))
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
    left = f"Left out, as their files are missing: {', '.join(left_out)}" if left_out else ""
    # No command makes the plan of a mapping.
    command = "" if isinstance(source, Mapping) else options.command(str(source), plan.device)
    about = {"remark": " ".join(filter(None, [plan.remark, left])), "command": command}
    return plan.model_copy(update=about), folder, executor
