"""The commands, from parsed arguments to exit code.

torch, pandas and matplotlib are imported only by the commands that need them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.core.errors import DataError, DataMissing, UserError
from harness.core.kinds import kind_of
from harness.core.records import verdict
from harness.core.run_options import RunOptions, shown_seconds
from harness.core.settings import NO_LOGIT, DataRef
from harness.core.trial import AnyTrial, Trial
from harness.execution.agenda import MISSING, Choice, agenda, counted, forget_settled, outlook, trials_text
from harness.execution.folder import claimed, make_folder, remove_leftovers, writing
from harness.execution.outcome import record_path
from harness.execution.slurm.submissions import Submissions, at_work
from harness.execution.slurm.submissions import lines as cluster_lines
from harness.planning.cluster import Cluster
from harness.planning.plan import FILE, Plan
from harness.planning.suite import read_suite
from harness.planning.suite_base import SuiteFile


def run(args: Namespace) -> int:
    """`run SUITE`: run all trials without an outcome, then write and print the report."""
    suite = read_suite(args.suite)
    if args.executor == "local":
        _start_imports(suite, args.profile)
    plan, picked = _plan(suite, args)
    root = _data_root(args.data)
    folder = args.out / plan.suite
    known, found = _known_checksums(folder), _check_data(picked, root, args.offline)
    checksums = known | found
    for key in dict.fromkeys(found):
        if known.get(key, found[key]) != found[key]:
            print(f"{key.name}: the data have changed since the last run here, so trials on them are other trials")
    plan, picked = plan.with_checksums(checksums), tuple(trial.with_checksums(checksums) for trial in picked)
    with claimed(make_folder(folder), args.host):
        return _run_in(folder, plan, picked, root, _cluster(suite, args), args)


def _run_in(
    folder: Path, plan: Plan, picked: Sequence[Trial], root: Path | None, cluster: Cluster | None, args: Namespace
) -> int:
    from harness.execution.gate import check_layers, leave_out_refused
    from harness.execution.local.slots import make_slots
    from harness.execution.local.supervisor import run_trials
    from harness.execution.progress import make_reporter
    from harness.execution.provenance import RunProvenance

    handed = at_work(folder, args.executor)
    if not handed:
        remove_leftovers(folder)
    provenance = RunProvenance(args.host)
    choice = Choice(args.retry_failed, args.stale)
    wanted = {trial.id for trial in picked}
    entries = [entry for entry in agenda(plan, folder, provenance.digests) if entry.trial.id in wanted]
    forget_settled(entries, folder)
    doing = [entry.trial for entry in entries if entry.runs(choice) and entry.trial.id not in handed]
    attached = [entry.trial for entry in entries if entry.trial.id in handed]
    room = _at_once(doing, cluster, args.jobs)
    left_out = _records_left_out(folder, plan)
    with writing(folder):
        plan.save(folder)
        provenance.save(folder)
    print(f"{plan.suite}, profile {plan.profile}, on {plan.device}: {counted(entries)}")
    if len(entries) < len(plan.trials):
        print(f"selected by --only, of {trials_text(len(plan.trials))}; the report covers all of them")
    if left_out:
        print(left_out)
    for line in outlook([entry for entry in entries if entry.trial.id not in handed], choice, room):
        print(line)
    if attached:
        print(f"{trials_text(len(attached))} of them submitted to the cluster before: this run waits for their results")
    if args.jobs is not None and doing and room < min(args.jobs, len(doing)):
        print(f"--jobs {args.jobs}: {room} at once, as the threads of more would compete for the cores")
    sys.stdout.flush()
    if doing or attached:
        run_options = RunOptions(
            out=folder,
            root=root,
            timeout=plan.timeout if args.timeout is None else args.timeout,
            memory=plan.memory if args.memory is None else args.memory,
            checkpoint=args.checkpoint,
            stale=args.stale,
            host=args.host,
            checks=check_layers(doing, args.unchecked),
        )
        with writing(folder):
            doing, planned = leave_out_refused(doing, run_options, provenance.of), len(doing)
        if args.fail_fast and len(doing) < planned:
            doing = attached = []
        good = _good(plan)
        stop_at = (lambda record: verdict(record) not in good) if args.fail_fast else None
        if not doing and not attached:
            print("nothing left to run")
        elif cluster is not None:
            from harness.execution.slurm.slurm import run_on_cluster

            run_on_cluster(doing, attached, run_options, cluster, args.jobs, stop_at)
        else:
            slots = make_slots(doing, args.jobs)
            with make_reporter(len(doing)) as reporter:
                run_trials(doing, run_options, slots, reporter, provenance=provenance.of, stop_at=stop_at)
    else:
        print("nothing to run")
    _write_report(plan, folder)
    states = [entry.state for entry in agenda(plan, folder) if entry.trial.id in wanted]
    return 0 if good_states(plan, states) else 1


def cancel(args: Namespace) -> int:
    """`cancel DIR`: cancel the remaining cluster jobs of a run."""
    from harness.execution.slurm.slurm import cancel_all

    for folder in run_folders(args.folder):
        print("\n".join(cancel_all(folder)) or f"{folder}: no cluster job uses it")
    return 0


def show_plan(args: Namespace) -> int:
    """`plan SUITE`: print the trials of a profile, the state of each, and what a run would do."""
    from tabulate import tabulate

    from harness.core.sources import Sources

    suite = read_suite(args.suite)
    plan, picked = _plan(suite, args)
    folder = args.out / plan.suite
    missing = ""
    checksums = _known_checksums(folder)
    try:
        checksums |= _check_data(picked, _data_root(args.data), offline=True)
    except (DataMissing, DataError) as error:
        missing = f"\na run would stop, because data are missing:\n{error}"
    plan, picked = plan.with_checksums(checksums), tuple(trial.with_checksums(checksums) for trial in picked)
    wanted = {trial.id for trial in picked}
    choice = Choice(args.retry_failed, args.stale)
    entries = [entry for entry in agenda(plan, folder, Sources().of) if entry.trial.id in wanted]
    lines = []
    for entry in entries:
        runs = entry.runs(choice)
        time = shown_seconds(entry.seconds) if runs and entry.seconds is not None else "?" if runs else ""
        trial = entry.trial
        where = trial.kind, trial.place, ", ".join(trial.rows), trial.repeat
        lines.append((trial.id, *where, entry.text(), time))
    headers = ("id", "kind", "place", "layer", "repetition", "state", "time")
    print(tabulate(lines, headers=headers, tablefmt="simple", disable_numparse=True))
    print(f"\n{plan.suite}, profile {plan.profile}, on {plan.device}: {counted(entries)}")
    forget_settled(entries, folder)
    doing = [entry.trial for entry in entries if entry.runs(choice)]
    for line in outlook(entries, choice, _at_once(doing, _cluster(suite, args), args.jobs)):
        print(line)
    if missing:
        print(missing)
    return 0


def validate(args: Namespace) -> int:
    """`validate SUITE`: check a suite file in one or all of its profiles."""
    from harness.checking.imports import try_imports

    suite = read_suite(args.suite)
    try_imports(suite.third_party)
    counts = suite.counts(args.profile)
    print(f"ok: {args.suite} ({', '.join(f'{name} {trials_text(count)}' for name, count in counts.items())})")
    return 0


def status(args: Namespace) -> int:
    """`status DIR`: count the trials by state; print a line for each that is not ok."""
    code = 0
    for folder in run_folders(args.folder):
        plan = Plan.load(folder)
        entries = agenda(plan, folder)
        print(f"{folder}: {plan.suite}, profile {plan.profile}, on {plan.device}: {counted(entries)}")
        for entry in entries:
            if entry.state not in ("ok", MISSING):
                print(f"  {entry.trial.id}  {entry.state}: {entry.reason}")
        for line in cluster_lines(Submissions(folder).look()):
            print(line)
        code = max(code, 0 if good_states(plan, [entry.state for entry in entries]) else 1)
    return code


def report(args: Namespace) -> int:
    """`report DIR...`: write the report again; for several folders, one report of all their records."""
    folders = [folder for given in args.folders for folder in run_folders(given)]
    code = 0
    if len(args.folders) > 1:
        from harness.reporting.compare.merge import merge

        merged = merge(folders, args.out)
        folders = [one.folder for one in merged]
        for one in merged:
            print("\n".join(one.lines()))
            code = max(code, 1 if one.conflicts else 0)
    for folder in folders:
        plan = Plan.load(folder)
        _write_report(plan, folder, args.at, args.benchmark)
        code = max(code, 0 if good_states(plan, [entry.state for entry in agenda(plan, folder)]) else 1)
    return code


def compare(args: Namespace) -> int:
    """`compare A B`: 0 if nothing became worse, 1 if something did; 2 if nothing can be compared."""
    from harness.cli.compare import compare_runs

    text, code = compare_runs(args.first, args.second, args.threshold, args.other_code, args.markdown)
    print(text)
    return code


def show_list(args: Namespace) -> int:
    """`list layers|flows|datasets|suites`: print what is available."""
    from harness.cli import listing

    print(getattr(listing, args.what)())
    return 0


def check_layer(args: Namespace) -> int:
    """`check-layer LAYER`: 0 if it obeys every rule, else 1."""
    from harness.checking.isolated import check_in_process, start_check_server
    from harness.planning.overrides import parse_options

    start_check_server()
    report = check_in_process(args.layer, parse_options(args.settings), Path.cwd(), args.timeout)
    print(json.dumps(report.document(), indent=1) if args.json else "\n".join(report.lines()))
    return 0 if report.ok else 1


COMMANDS: dict[str, Callable[[Namespace], int]] = {
    "run": run,
    "plan": show_plan,
    "validate": validate,
    "status": status,
    "cancel": cancel,
    "report": report,
    "compare": compare,
    "list": show_list,
    "check-layer": check_layer,
}


def good_states(plan: Plan, states: Iterable[str]) -> bool:
    """Return whether every trial is ok with no failed audit, or unsupported where the suite declares it."""
    return _good(plan).issuperset(states)


def _good(plan: Plan) -> set[str]:
    return {"ok", "unsupported"} if plan.unsupported else {"ok"}


def run_folders(folder: Path) -> list[Path]:
    """Return the folder itself if a suite was run in it, else those in it; raise a UserError if there are none."""
    if (folder / FILE).is_file():
        return [folder]
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give the folder of a run, OUT/<suite>")
    inner = sorted(path.parent for path in folder.glob(f"*/{FILE}"))
    if not inner:
        raise UserError(f"{folder}: no {FILE} in it or in its folders, so no suite was run here; give OUT/<suite>")
    return inner


def _plan(suite: SuiteFile, args: Namespace) -> tuple[Plan, tuple[AnyTrial, ...]]:
    """Return the plan, and the trials that `--only` selects."""
    from harness.checking.imports import try_imports
    from harness.planning.overrides import run_command

    try_imports([*suite.third_party, *((spec, suite.folder) for spec in args.layers if ":" in spec)])
    cluster = _cluster(suite, args)
    device, elsewhere = args.device, None
    if cluster is not None:  # cluster nodes may have devices that this machine lacks
        elsewhere = cluster.cpus or 1
        device = cluster.device if args.device == "auto" else args.device
    changes = {name: getattr(args, name) for name in ("only", "settings", "layers", "seeds")}
    plan, picked = suite.check().plan(args.profile, device, **changes, jobs=args.jobs, elsewhere=elsewhere)
    if not plan.sections:  # a suite of sections may be changed in its parts alone
        changes["only"] = ()
    command = run_command(
        args.suite, args.profile, plan.device, **changes, data=args.data, unchecked=getattr(args, "unchecked", False)
    )
    return plan.model_copy(update={"command": command}), picked


def _start_imports(suite: SuiteFile, profile: str) -> None:
    """Let the trials' server import torch while this process does so for planning: both take equally long."""
    from harness.execution.local.process import start_server

    if profile in suite.profile_names:
        start_server(suite.data_names(profile), kernels=kind_of(suite.kind).computes)


def _cluster(suite: SuiteFile, args: Namespace) -> Cluster | None:
    """Return the resources that jobs request; None if trials run on this machine."""
    from harness.planning.cluster import cluster_of

    if args.executor == "slurm":
        return cluster_of(suite.cluster, args.cluster)
    if args.cluster:
        raise UserError(f"--cluster {args.cluster[0]}: the option needs --executor slurm; give both or neither")
    return None


def _at_once(trials: Sequence[Trial], cluster: Cluster | None, jobs: int | None) -> int:
    """Return how many of these trials run at once."""
    from harness.execution.local.slots import at_once, make_slots

    if cluster is None:
        return at_once(trials, make_slots(trials, jobs))
    return max(1, min(len(trials), jobs or cluster.throttle or len(trials)))


def _data_root(given: Path | None) -> Path | None:
    """Return `--data`, else $INVERTBENCH_DATA, else None; raise DataMissing if a named root does not exist."""
    variable = os.environ.get("INVERTBENCH_DATA")
    root = given or (Path(variable) if variable else None)
    if root is not None and not root.is_dir():
        name = "--data" if given else "$INVERTBENCH_DATA"
        raise DataMissing(f"{name} {root}: no such folder; give the folder that holds the data sets")
    return root.resolve() if root else None


def _check_data(trials: Sequence[AnyTrial], root: Path | None, offline: bool) -> dict[DataRef, str | None]:
    """Find, check and prepare all data of the trials, before any of them runs.

    Returns:
        The checksum of each data set.

    Raises:
        DataMissing: data are missing or wrong; the message lists all faults.
        UserError: likewise, if the suite is at fault for all of them.
    """
    from harness.datasets import Store, find_dataset

    store = Store.at(root, offline)
    checksums: dict[DataRef, str | None] = {}
    faults: dict[str, bool] = {}  # whether the data are at fault
    for data in dict.fromkeys(data for trial in trials for data in trial.data_sets):
        dataset, options = find_dataset(data.name), dict(data.options)
        try:
            dataset.check(store, options)
            checksums[data.arrays] = dataset.checksum(store, options)
            if data.preprocessing == "logit" and dataset.load(store, options).levels is None:
                raise UserError(f"{data.label}: {NO_LOGIT}")
        except UserError as error:
            faults[str(error)] = isinstance(error, (DataMissing, DataError))
    if faults:
        raise (DataMissing if any(faults.values()) else UserError)("\n".join(faults))
    return checksums


def _known_checksums(folder: Path) -> dict[DataRef, str | None]:
    """Return the checksums of the folder's last plan, for data sets that are not checked again now."""
    with contextlib.suppress(UserError):
        trials = Plan.load(folder).trials
        return {data.arrays: data.checksum for trial in trials for data in trial.data_sets}
    return {}


def _records_left_out(folder: Path, plan: Plan) -> str | None:
    """Describe what the report no longer covers when this plan replaces the folder's last one; None if nothing."""
    with contextlib.suppress(UserError):
        last = Plan.load(folder)
        known = {trial.id for trial in plan.trials}
        gone = [trial for trial in last.trials if trial.id not in known and record_path(folder, trial).exists()]
        if gone:
            return (
                f"the last command here (profile {last.profile}, {last.device}, {trials_text(len(last.trials))}) had "
                f"other settings: {trials_text(len(gone))} of it with records stay in records/, and are not in this "
                "report; the same command brings them back"
            )
    return None


def _write_report(plan: Plan, folder: Path, at: Sequence[Any] = (), benchmarks: Sequence[Path] = ()) -> None:
    from harness.reporting.report import write_report

    with writing(folder):
        written = write_report(folder, at, benchmarks)
    print(f"\n{written.table}")
    print(f"in {folder}: {', '.join(written.files)}")
