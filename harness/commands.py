"""What each command does, from its parsed arguments to its exit code.

Imports of torch, pandas and matplotlib wait for the command that needs them.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.errors import DataError, DataMissing, UserError
from harness.planning.plan import FILE, Plan
from harness.records import AUDIT_FAILED, read_record, verdict
from harness.settings import NO_LOGIT, DataRef, DensityTrial, ParametersTrial, RuntimeTrial, Trial

MISSING = "to run"
DAMAGED = "damaged"
OTHER_DATA = "of other data"


def run(args: Namespace) -> int:
    """`run SUITE`: run what has no good record yet, then write and print the report."""
    _start_imports(args)
    plan = _plan(args)
    root = _data_root(args.data)
    checksums = _check_data(plan, root, args.offline)
    folder = _make_folder(args.out / plan.suite)
    states = trial_states(plan, folder, checksums)
    waiting = [trial for trial in plan.trials if not _settled(states[trial.id])]
    plan.save(folder)
    print(f"{plan.suite}, profile {plan.profile}, on {plan.device}: {_counted(states)}", flush=True)
    if args.only:
        print("the report covers what --only picked; without it, the same command reports all that was run", flush=True)
    if waiting:
        _run_trials(waiting, root, folder, args.jobs)
    else:
        print("every trial has its record: nothing to run")
    return _write_report(plan, folder)


def show_plan(args: Namespace) -> int:
    """`plan SUITE`: print the trials of a profile and their state."""
    from tabulate import tabulate

    plan = _plan(args)
    states = trial_states(plan, args.out / plan.suite)
    lines = [(trial.id, trial.kind, *_identity(trial), states[trial.id]) for trial in plan.trials]
    headers = ("id", "kind", "column", "layer", "seed", "state")
    print(tabulate(lines, headers=headers, tablefmt="simple", disable_numparse=True))
    print(f"\n{plan.suite}, profile {plan.profile}, on {plan.device}: {_counted(states)}")
    return 0


def validate(args: Namespace) -> int:
    """`validate SUITE`: check a suite file in all of its profiles, or one."""
    from harness.planning.plan import count_trials, make_plan
    from harness.planning.suite import load_suite, validate_suite

    if args.profile is None:
        suite = validate_suite(args.suite)
        counts = {name: count_trials(suite, name) for name in suite.profiles}
    else:
        counts = {args.profile: len(make_plan(load_suite(args.suite), args.profile, "cpu").trials)}
    print(f"ok: {args.suite} ({', '.join(f'{name} {_trials(count)}' for name, count in counts.items())})")
    return 0


def status(args: Namespace) -> int:
    """`status DIR`: count the trials by what became of them; a line for each that is not ok."""
    code = 0
    for folder in run_folders(args.folder):
        plan = Plan.load(folder)
        states = trial_states(plan, folder)
        print(f"{folder}: {plan.suite}, profile {plan.profile}, on {plan.device}: {_counted(states)}")
        for trial in plan.trials:
            if states[trial.id] not in ("ok", MISSING):
                print(f"  {trial.id}  {states[trial.id]}: {_reason(folder, trial)}")
        code = max(code, exit_code(plan, states))
    return code


def report(args: Namespace) -> int:
    """`report DIR`: write the report again."""
    return max(_write_report(Plan.load(folder), folder) for folder in run_folders(args.folder))


def show_list(args: Namespace) -> int:
    """`list layers|datasets|suites`."""
    from harness import listing

    print({"layers": listing.layers, "datasets": listing.datasets, "suites": listing.suites}[args.what]())
    return 0


def check_layer(args: Namespace) -> int:
    """`check-layer LAYER`: 0 if it keeps every rule, else 1."""
    from harness.checking.check_layer import check_layer as check
    from harness.planning.overrides import parse_options

    found = check(args.layer, parse_options(args.settings), Path.cwd())
    print("\n".join(found.lines()))
    return 0 if found.ok else 1


COMMANDS: dict[str, Callable[[Namespace], int]] = {
    "run": run,
    "plan": show_plan,
    "validate": validate,
    "status": status,
    "report": report,
    "list": show_list,
    "check-layer": check_layer,
}


def trial_states(plan: Plan, folder: Path, checksums: Mapping[DataRef, str] | None = None) -> dict[str, str]:
    """What became of each trial: the status of its record, or that it is still to run.

    Args:
        checksums: of the data as they are now, where they are known; a record of other data is no result of the trial.
    """
    return {trial.id: _state(folder, trial, checksums or {}) for trial in plan.trials}


def exit_code(plan: Plan, states: Mapping[str, str]) -> int:
    """0 where every trial is ok and its audit has not failed, or unsupported where the suite says so; else 1."""
    good = {"ok", "unsupported"} if plan.unsupported else {"ok"}
    return 0 if good.issuperset(states.values()) else 1


def run_folders(folder: Path) -> list[Path]:
    """The folder itself if a suite was run in it, else those in it; none: a UserError."""
    if (folder / FILE).is_file():
        return [folder]
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give the folder of a run, OUT/<suite>")
    inner = sorted(path.parent for path in folder.glob(f"*/{FILE}"))
    if not inner:
        raise UserError(f"{folder}: no {FILE} in it or in its folders, so no suite was run here; give OUT/<suite>")
    return inner


def _plan(args: Namespace) -> Plan:
    from harness.planning.plan import make_plan
    from harness.planning.suite import load_suite

    return make_plan(
        load_suite(args.suite),
        args.profile,
        args.device,
        seeds=args.seeds,
        only=args.only,
        settings=args.settings,
        layers=args.layers,
    )


def _start_imports(args: Namespace) -> None:
    """Let the trials' server import torch while this process does, to plan: one takes as long as the other."""
    from harness.executor import start_server
    from harness.planning.suite import read_suite

    try:
        suite = read_suite(args.suite)
    except UserError:
        return  # `_plan` says what is wrong, and with what is found out later
    profile = suite.profiles.get(args.profile)
    if profile is not None:
        start_server(
            [entry.data or label for label, entry in profile.datasets.items()], kernels=suite.kind != "parameters"
        )


def _data_root(given: Path | None) -> Path | None:
    """`--data`, else $INVERTBENCH_DATA, else none; a root that is named must be there."""
    variable = os.environ.get("INVERTBENCH_DATA")
    root = given or (Path(variable) if variable else None)
    if root is not None and not root.is_dir():
        name = "--data" if given else "$INVERTBENCH_DATA"
        raise DataMissing(f"{name} {root}: no such folder; give the folder that holds the data sets")
    return root.resolve() if root else None


def _check_data(plan: Plan, root: Path | None, offline: bool) -> dict[DataRef, str]:
    """Find, check and prepare all data of the plan, before anything runs.

    Returns:
        The checksum of each data set that has one.

    Raises:
        DataMissing: with everything that is not there or not right, if any of it is the data's fault.
        UserError: likewise, if it is all the suite's.
    """
    from harness.datasets import Store, find_dataset

    store = Store.at(root, offline)
    checksums: dict[DataRef, str] = {}
    faults: dict[str, bool] = {}  # whether each is the data's
    for data in dict.fromkeys(trial.data for trial in plan.trials if trial.kind == "density"):
        dataset, options = find_dataset(data.name), dict(data.options)
        try:
            dataset.check(store, options)
            checksum = dataset.checksum(store, options)
            if checksum is not None:
                checksums[data] = checksum
            if data.preprocessing == "logit" and dataset.load(store, options).levels is None:
                raise UserError(f"{data.label}: {NO_LOGIT}")
        except UserError as error:
            faults[str(error)] = isinstance(error, (DataMissing, DataError))
    if faults:
        raise (DataMissing if any(faults.values()) else UserError)("\n".join(faults))
    return checksums


def _make_folder(folder: Path) -> Path:
    try:
        for inner in (folder, folder / "records", folder / "logs"):
            inner.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written to ({error.strerror}); choose another --out") from error
    if not os.access(folder, os.W_OK) or (folder / FILE).is_dir():
        raise UserError(f"{folder}: cannot be written to; choose another --out")
    return folder


def _run_trials(trials: Sequence[Trial], root: Path | None, folder: Path, jobs: int | None) -> None:
    from harness.executor import default_jobs, run_trials
    from harness.progress import make_reporter

    with make_reporter(len(trials)) as reporter:
        run_trials(trials, root, folder, jobs or default_jobs(trials), reporter)


def _write_report(plan: Plan, folder: Path) -> int:
    from harness.reporting.report import write_report

    written = write_report(folder)
    print(f"\n{written.table}")
    print(f"in {folder}: {', '.join(written.files)}")
    return exit_code(plan, trial_states(plan, folder))


def _settled(state: str) -> bool:
    """Whether running the trial again would be in vain; what failed may have failed for want of memory."""
    return state in ("ok", "unsupported", AUDIT_FAILED)


def _state(folder: Path, trial: Trial, checksums: Mapping[DataRef, str]) -> str:
    path = _record_path(folder, trial)
    if not path.exists():
        return MISSING
    try:
        record = read_record(path)
    except UserError:
        return DAMAGED
    if isinstance(trial, DensityTrial):
        seen = record.notes.get("checksum")
        if seen is not None and checksums.get(trial.data, seen) != seen:
            return OTHER_DATA
    return verdict(record)


def _reason(folder: Path, trial: Trial) -> str:
    try:
        record = read_record(_record_path(folder, trial))
        reasons = [record.reason, *(row.get("audit_reason") for row in record.rows)]
        return " ".join((next(filter(None, reasons), None) or "no reason given").split())
    except UserError as error:
        return str(error)


def _record_path(folder: Path, trial: Trial) -> Path:
    return folder / "records" / f"{trial.id}.json"


def _counted(states: Mapping[str, str]) -> str:
    """`48 trials: 3 ok, 1 diverged (runs again), 44 to run`."""
    counts = Counter(states.values())
    parts = [
        f"{count} {state}{'' if _settled(state) or state == MISSING else ' (a run tries again)'}"
        for state, count in sorted(counts.items(), key=lambda item: (item[0] == MISSING, item[0] != "ok", item[0]))
    ]
    return f"{_trials(len(states))}: {', '.join(parts)}"


def _trials(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"


def _identity(trial: Trial) -> tuple[str, str, str]:
    """Column, layer and seed of a trial, for reading."""
    match trial:
        case DensityTrial():
            return trial.data.label, trial.layer.row, str(trial.seed)
        case ParametersTrial():
            return trial.label, f"{trial.layer.row}, width {trial.flow.width}", ""
        case RuntimeTrial():
            shape = "x".join(map(str, trial.shape))
            point = f"{trial.sweep}, {shape}, batch {trial.batch}"
            again = f", process {trial.process + 1}" if trial.process else ""
            return f"{point}{again}", ", ".join(one.row for one in trial.layers), ""
    return "", "", ""
