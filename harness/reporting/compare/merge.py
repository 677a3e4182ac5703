"""Join the records of one suite, of several machines or archives, in a folder that is reported like any other."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.core.archive import StoredRecords, read_records
from harness.core.errors import UserError
from harness.core.files import RECORD, checked_name, read_file, write_atomically
from harness.core.records import Record, verdict, write_record
from harness.core.trial import AnyTrial
from harness.planning.plan import FILE, Plan, Section, plan_fault
from harness.reporting.compare.measure import difference, flat
from harness.reporting.frame import CONFLICT, elsewhere, is_timed, machine_name, timing_machine
from harness.reporting.origins import mixtures
from harness.reporting.written import refuse_links

MARK = "merged.json"
TIMES = frozenset({"train_seconds", "audit_seconds"})  # measures that differ from run to run


@dataclass(frozen=True)
class Merged:
    """The outcome of merging one suite, as it has been written."""

    folder: Path
    origins: tuple[Path, ...]
    plan: Plan
    records: tuple[Record, ...]
    conflicts: tuple[str, ...]  # records of one trial, or of trials of two stages, that contradict each other
    remarks: tuple[str, ...]  # other choices and omissions

    def lines(self) -> list[str]:
        """Return the outcome as lines for a terminal."""
        head = f"{self.folder}: {len(self.records)} records of {', '.join(map(str, self.origins))}"
        return [head, *(f"  conflict: {text}" for text in self.conflicts), *(f"  {text}" for text in self.remarks)]


@dataclass(frozen=True)
class _Run:
    """One of the runs to be merged, with the trials and records that it gives to the merge."""

    folder: Path
    plan: Plan
    stored: StoredRecords


def merge(folders: Sequence[Path], out: Path) -> list[Merged]:
    """Join run folders, suite by suite, as `out/<suite>`; a merge that is already there is replaced.

    Args:
        folders: of runs, or archives; where two have a good record of one trial, the first one's is kept.

    Raises:
        UserError: plans that do not belong into one table, a record that cannot be read, or a target that is a run.
    """
    plans = {folder: Plan.load(folder) for folder in dict.fromkeys(folders)}
    by_suite: dict[str, list[_Run]] = {}
    for folder, plan in plans.items():
        by_suite.setdefault(plan.suite, []).append(_Run(folder, plan, read_records(folder, plan.trials)))
    joined = {suite: _joined(runs) for suite, runs in by_suite.items()}
    for suite in joined:
        _check_target(out / suite, list(plans))
    return [_merge_suite(*joined[suite], out / suite) for suite in joined]


def _joined(runs: Sequence[_Run]) -> tuple[Plan, Sequence[_Run], Sequence[str]]:
    """Return the plan of all runs of a suite, the runs with what they give to it, and remarks on the rest."""
    if len(runs) == 1:
        return runs[0].plan, runs, []
    timed, remarks = _of_one_machine(runs)
    plan = join_plans({run.folder: run.plan for run in timed})
    if (fault := plan_fault(plan)) is not None:
        raise UserError(f"{plan.suite}: the plans of {len(runs)} runs make no plan together ({fault})")
    return plan, timed, remarks


def _of_one_machine(runs: Sequence[_Run]) -> tuple[list[_Run], list[str]]:
    """Return runs with the times of one machine, of layers that were timed side by side, and remarks on the others.

    Raises:
        UserError: a run measured times alone, so that all of it would be left out.
    """
    machine = timing_machine(record for run in runs for record in run.stored.records.values())
    points: dict[tuple[str, ...], str] = {}  # of a table -> the trial that measures it
    kept, remarks = [], []
    for run in runs:
        without = []
        for trial in (trial for trial in run.plan.trials if trial.alone):
            record = run.stored.records.get(trial.id)
            why = None if record is None else elsewhere(record, machine)
            if why is None and points.setdefault(run.plan.cell(trial), trial.id) != trial.id:
                why = "other layers than in a run before it, and layers are timed side by side"
            if why is not None:
                without.append((trial, why))
        if without and all(trial.alone for trial in run.plan.trials):
            raise UserError(f"{run.folder}: {without[0][0].place}: {without[0][1]}; report each run by itself")
        if without:
            remarks.append(f"{run.folder}: {len(without)} trials of times are left out: {without[0][1]}")
        names = {trial.id for trial, _ in without}
        trials = tuple(trial for trial in run.plan.trials if trial.id not in names)
        kept.append(replace(run, plan=run.plan.model_copy(update={"trials": trials})))
    return kept, remarks


def join_plans(plans: Mapping[Path, Plan]) -> Plan:
    """Return a plan with all their trials, in the order of a run: seeds, columns, rows, and runtime trials last."""
    first_folder, first = next(iter(plans.items()))
    cells: dict[tuple[Any, ...], tuple[Path, AnyTrial]] = {}
    sections: dict[str, Section] = {}
    for folder, plan in plans.items():
        for name in ("kind", "profile", "device"):
            values = getattr(first, name), getattr(plan, name)
            if values[0] != values[1]:
                differ = f"{first_folder} is of {name} {values[0]}, {folder} of {values[1]}"
                raise UserError(f"{differ}: not one table; report each by itself")
        for section in plan.sections:
            if sections.setdefault(section.name, section) != section:
                raise UserError(
                    f"{folder} and a folder before it have different claims of the name {section.name}: not one table; "
                    "report each by itself"
                )
        for trial in plan.trials:
            before = cells.setdefault(plan.cell(trial), (folder, trial))
            if before[1].id != trial.id:
                settings = (dict(flat(one.model_dump(mode="json"))) for one in (before[1], trial))
                raise UserError(
                    f"{before[0]} and {folder} have trials of one cell that differ in {_differing(*settings)}: not one "
                    "table; report each by itself"
                )
    _check_protocols(plans)
    rows = tuple(dict.fromkeys(row for plan in plans.values() for row in plan.rows))
    columns = tuple(dict.fromkeys(column for plan in plans.values() for column in plan.columns))
    seeds = tuple(sorted({seed for plan in plans.values() for seed in plan.seeds}))
    trials = sorted((trial for _, trial in cells.values()), key=lambda trial: trial.order(rows, columns))
    published = first.published
    if published is not None:  # a run with --only has the numbers of the selected rows
        tables = [plan.published.values for plan in plans.values() if plan.published is not None]
        quoted = {row: numbers for values in tables for row, numbers in values.items()}
        published = published.model_copy(update={"values": quoted})
    return first.model_copy(
        update={
            "rows": rows,
            "columns": columns,
            "seeds": seeds,
            "unsupported": any(plan.unsupported for plan in plans.values()),
            "published": published,
            "command": " && ".join(dict.fromkeys(plan.command for plan in plans.values() if plan.command)),
            "trials": tuple(trials),
            "sections": tuple(sections.values()),
        }
    )


def _check_protocols(plans: Mapping[Path, Plan]) -> None:
    """Raise a UserError if repetitions of a trial differ in more than they draw.

    Layers and data sets may have settings of their own, so that the settings of different ones are not compared; the
    caption of the likelihoods names the rows of another budget.
    """
    seen: dict[tuple[str, ...], tuple[Path, dict[str, Any]]] = {}
    for folder, plan in plans.items():
        for trial in plan.trials:
            protocol = dict(flat(trial.protocol))
            origin, first = seen.setdefault(plan.cell(trial)[:-1], (folder, protocol))
            if first != protocol:
                raise UserError(
                    f"{origin} and {folder} have trials of one table that differ in {_differing(first, protocol)}: not "
                    "one table; report each by itself"
                )


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the first settings that differ, with both values."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(difference(name, before.get(name), after.get(name)) for name in names[:3])


def _check_target(folder: Path, origins: Sequence[Path]) -> None:
    if folder.resolve() in [origin.resolve() for origin in origins]:
        raise UserError(f"{folder}: is one of the folders to be merged; choose another --out")
    refuse_links(folder.parent, folder, folder / "records")
    if (folder / FILE).exists() and not (folder / MARK).exists():
        raise UserError(f"{folder}: holds a run, not a merge; choose another --out")


def _merge_suite(plan: Plan, runs: Sequence[_Run], left_out: Sequence[str], folder: Path) -> Merged:
    remarks = [*(f"{run.folder}: {why}" for run in runs for why in run.stored.damaged.values()), *left_out]
    conflicts: list[str] = []
    read: dict[str, list[tuple[Path, Record]]] = {trial.id: [] for trial in plan.trials}
    for run in runs:
        for trial in run.plan.trials:
            if (record := run.stored.records.get(trial.id)) is not None:
                read[trial.id].append((run.folder, record))
    chosen = [_choose(name, records, conflicts, remarks) for name, records in read.items() if records]
    taken = {record.id: record for _, record in chosen}
    outdated = [(trial.id, trial.outdated(taken[trial.id], taken)) for trial in plan.trials if trial.id in taken]
    conflicts += [f"{name}: {contradiction}" for name, contradiction in outdated if contradiction is not None]
    origins = tuple(run.folder for run in runs)
    _write(plan, folder, chosen)
    remarks += mixtures((plan.cell(trial)[:-1], taken[trial.id]) for trial in plan.trials if trial.id in taken)
    return Merged(folder, origins, plan, tuple(taken.values()), tuple(conflicts), tuple(remarks))


def _choose(
    name: str, records: Sequence[tuple[Path, Record]], conflicts: list[str], remarks: list[str]
) -> tuple[Path, Record]:
    """Return the first record that is ok, or else the first; contradictions are entered, and noted in the record."""
    origin, record = next((entry for entry in records if verdict(entry[1]) == "ok"), records[0])
    differing = []
    for other_origin, other in records:
        if verdict(other) != verdict(record):
            remarks.append(f"{name}: {verdict(record)} in {origin}, which is taken, {verdict(other)} in {other_origin}")
        elif record.status == "ok" and (measure := _contradiction(record, other)) is not None:
            conflicts.append(f"{name}: {measure} in {origin}, which is taken, and in {other_origin}")
            differing.append(f"{measure}, the latter on {machine_name(other)}")
    if differing:
        record = replace(record, notes=record.notes | {CONFLICT: "two records differ: " + "; ".join(differing)})
    return origin, record


def _contradiction(first: Record, second: Record) -> str | None:
    """Return the first measure in which two records differ, with both values; None if they agree in all but times."""
    if is_timed(first):  # times are never twice the same
        return None
    if len(first.rows) != len(second.rows):
        return f"{len(first.rows)} and {len(second.rows)} rows"
    for before, after in zip(first.rows, second.rows, strict=True):
        for measure in dict.fromkeys([*before, *after]):
            if measure not in TIMES and before.get(measure) != after.get(measure):
                return f"{measure} is {before.get(measure)} and {after.get(measure)}"
    return None


def _write(plan: Plan, folder: Path, chosen: Sequence[tuple[Path, Record]]) -> None:
    if (folder / MARK).exists():  # of an earlier merge, whose records are removed
        with contextlib.suppress(UserError):
            ids = {trial.id for trial in Plan.load(folder).trials}
            for path in (folder / "records").glob("*"):
                if path.name.removesuffix(".json") in ids or path.name.rsplit(".", 2)[0] in ids:  # the latter: arrays
                    path.unlink()
    write_atomically(folder / MARK, b"{}")
    plan.save(folder)
    for origin, record in chosen:
        if record.arrays is not None:
            arrays = origin / "records" / checked_name(record.arrays)
            if arrays.is_file():
                write_atomically(folder / "records" / arrays.name, read_file(arrays, RECORD))
        write_record(folder / "records", record)
