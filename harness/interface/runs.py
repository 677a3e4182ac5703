"""`harness.run`, `report`, `merge`, `replicate` and `verify`: runs of suites, and their reports."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Annotated, Any

from pydantic import Field

from harness.core.archive import archive_of
from harness.core.arguments import Place, Places, check, checked, taking
from harness.core.discovery import sibling
from harness.core.errors import UserError
from harness.core.records import write_record
from harness.core.run_options import RunOptions
from harness.core.settings import Flag, silent
from harness.execution.agenda import agenda, forget_settled, outlook, ready
from harness.execution.data import check_data, data_root
from harness.execution.executor import Executor, Following, attached_trials, executor_class
from harness.execution.folder import claimed, make_folder, remove_leftovers, writing
from harness.execution.gate import check_layers
from harness.execution.outcome import RunProvenance
from harness.execution.progress import FailedFast, ReportProgress, make_reporter
from harness.interface.plan import MERGED, EqualTerms, ReplicateArguments, Root, RunArguments, make_plan, plan
from harness.planning.plan import FILE, Plan, stray_records
from harness.planning.suite import Source
from harness.reporting.compare.comparison import Comparison, compare
from harness.reporting.compare.merge import merge as merge_records
from harness.reporting.compare.replication import Replication, replication, write_replication
from harness.reporting.overview import FOLDER, write_overview
from harness.reporting.report import ReportedResults, report_class, write_report

VERIFIED = Path("reports/verified")


@taking(RunArguments)
def run(suite: Source, **arguments: Any) -> ReportedResults:
    """Run the trials of a suite that have no outcome yet, write the report, and return the results.

    The folder `out/<suite>` is that of `python -m harness run`. A trial that fails is a row of the results; see `ok`
    and `statuses` there. Trials run in processes of their own, so a script needs no `if __name__ == "__main__"`.

    Args:
        suite: the name of a packaged suite, the path of a suite file, or a mapping with the content of one.
        **arguments: see below.

    Raises:
        UserError: an argument or the suite (SuiteError) is wrong, data are missing (DataMissing) or damaged
            (DataError), or the folder cannot be used; nothing has run.
        KeyboardInterrupt: finished trials keep their records, and the same call resumes.
    """
    options = check(RunArguments, arguments)
    plan, folder, executor = make_plan(suite, options)
    with claimed(make_folder(folder)):
        _run_remaining(plan, folder, executor, options)
        return report(folder, quiet=options.quiet)


def _run_remaining(plan: Plan, folder: Path, executor: Executor, options: RunArguments) -> None:
    """Run the trials in passes, as some wait for others, such as for the candidates of their tuning."""
    submitted = attached_trials(folder, executor)
    if not submitted:
        remove_leftovers(folder)
    provenance = RunProvenance(options.host)
    states = partial(agenda, plan, folder, provenance.digests, retry_failed=options.retry_failed, stale=options.stale)
    entries = states()
    forget_settled(entries, folder)
    for line in outlook(plan, entries, executor.at_once, options.stale):
        options.tell(line)
    with writing(folder):
        plan.save(folder)
        provenance.save(folder)
    if not any(entry.runs for entry in entries):
        options.tell("nothing to run")
    told: dict[str, Any] = {"quiet": options.quiet, "fail_fast": options.fail_fast, "unsupported": plan.unsupported}
    following = Following(partial(make_reporter, folder=folder, **told), provenance.of, options.tell)
    left = (entry.trial for entry in entries if entry.runs and entry.trial.id not in submitted)
    run_options = RunOptions(
        out=folder,
        root=data_root(options.data),
        timeout=options.timeout or plan.timeout,
        memory=options.memory or plan.memory,
        checks=check_layers(left, options.unchecked, options.tell),
        **options.model_dump(include={"checkpoint", "stale", "host"}),
    )
    attempted = set[str]()
    with contextlib.suppress(FailedFast):
        while wave := ready(states(), attempted):
            attempted |= {trial.id for trial in wave}
            executor.run(wave, run_options, following)


@checked
def report(folder: Place, *, at: EqualTerms = (), archive: Flag = False, quiet: Flag = False) -> ReportedResults:
    """Write the report of a run again from its records, and return the results.

    Args:
        folder: OUT/<suite>, in which a suite was run.
        at: measures for further tables of the likelihoods at equal values: "steps", "seconds", "parameters" or "width".
        archive: also write records.zip, which holds the plan and the records in one file.
        quiet: do not print how much is done, and which records are left out.

    Raises:
        UserError: there is no run, its plan or a record cannot be read, or it is an archive (see `merge`).
    """
    if archive_of(folder) is not None:
        raise UserError(f"{folder}: an archive, beside which no report is written; use harness.merge([...], out)")
    with writing(folder):
        results = write_report(folder, at, archive, silent if quiet else ReportProgress(folder.name))
    for line in () if quiet else stray_records(results.plan, folder):
        print(line)
    return results


@checked
def merge(
    folders: Places, out: Place = MERGED, *, at: EqualTerms = (), archive: Flag = False
) -> tuple[ReportedResults, ...]:
    """Join the records of several runs, and return the results of each suite; its report is in `out/<suite>`.

    Where two runs have a good record of one trial, the first one's is kept; records that contradict each other are
    printed, and are `conflicts` of the results. Times are of one machine, and those of others are left out and named.
    Several suites of one kind also have a report across their data sets, in `out/across`.

    Args:
        folders: of runs, OUT/<suite>, or archives of their records.
        out: the folder of the merged runs; a merge that is already there is replaced.
        at, archive: as of `report`.

    Raises:
        UserError: plans that do not belong into one table, or a target that holds a run.
    """
    for line in (line for place in folders for line in stray_records(Plan.load(place), place)):
        print(line)
    merged = merge_records(folders, out)
    print("\n".join(line for run in merged for line in run.lines()))
    runs = tuple(report(run.folder, at=at, archive=archive) for run in merged)
    if len(runs) > 1:
        with writing(out / FOLDER):
            text = write_overview(out / FOLDER, runs)
        print("" if text is None else f"\n{text}\n\nin {out / FOLDER}")
    return runs


@taking(ReplicateArguments)
def replicate(suite: Source | Sequence[str | Path], **arguments: Any) -> Replication:
    """Run a suite under several draws of all that it draws, and count the verdicts that stay.

    Each draw is run in `out/<suite>-draws/draw-<number>`, in which the same call resumes; tables are written beside it.

    Args:
        suite: as of `harness.run`; or folders or archives of two and more runs of one suite, of which none runs.
        **arguments: see below.

    Raises:
        UserError: as of `harness.run`, the suite draws nothing, or no pair of layers is compared in all draws.
    """
    options = check(ReplicateArguments, arguments)
    if isinstance(suite, (list, tuple)):
        folder, runs = options.out, _read_runs(suite)
    else:
        folder, runs = _run_draws(suite, options)
    result = replication({name: results.comparisons() for name, results in runs.items()})
    with writing(folder):
        write_replication(result, folder)
    return replace(result, runs=runs, folder=folder)


@checked
def _read_runs(suite: Places) -> dict[str, ReportedResults]:
    return {str(place): ReportedResults.read(place) for place in suite}


def _run_draws(source: Any, options: ReplicateArguments) -> tuple[Path, dict[str, ReportedResults]]:
    """Run each draw; return the folder of all and the results of each by name."""
    if any(text.replace(" ", "").startswith("draw=") for text in options.settings):
        raise UserError("--set draw: each draw of a replication has its own; leave it out")
    shared = options.model_dump(exclude={"draws"})
    planned = plan(source, **shared).plan
    if (fault := report_class(planned.kind).verdict_fault(planned)) is not None:
        raise UserError(f"{planned.suite}: has no verdict that could replicate: {fault}")
    folder, runs = options.out / f"{planned.suite}-draws", {}
    for number in range(options.draws):
        changes = {"settings": (*options.settings, f"draw={number}"), "out": folder / f"draw-{number}"}
        options.tell(f"{planned.suite}, draw-{number}, in {changes['out']}")
        runs[f"draw-{number}"] = run(source, **shared | changes)
    return folder, runs


@checked
def verify(
    folder: Place, *, number: Annotated[int, Field(ge=1, strict=True)] = 3, out: Place = VERIFIED, data: Root = None
) -> Comparison:
    """Train a random sample of the finished trials of a run again, audit included, and compare them (A, B).

    Trials that were tuned take the choice that the handed-in candidates make. Where the run has kept the weights of a
    sampled trial, which archives do not hold, these are evaluated and audited again, too. Layers and data of files are
    third-party code, which runs here. The run is `same` if no trial changed, and no weights contradict their record.

    Args:
        folder: OUT/<suite>, or an archive.
        number: of trials, drawn anew each time; times of single layers are no results to repeat, and are not drawn.
        out: a folder that does not hold a verification yet.
        data: the folder of the data sets; by default $INVERTBENCH_DATA.

    Raises:
        UserError: no trial has ended well, data are missing or others, kept weights are not those of their trial, or
            `out` is in use.
    """
    given = ReportedResults.read(folder)
    plan, records = given.plan, given.records
    ended = [trial for trial in plan.trials if given.statuses.get(trial.id) == "ok" and trial.stage and not trial.alone]
    if not ended:
        raise UserError(f"{folder}: no trial that trains or computes has ended well; give a run or an archive with one")
    sample = SystemRandom().sample(ended, min(number, len(ended)))
    root, stated, again = data_root(data), out / "stated" / plan.suite, out / "again" / plan.suite
    check_data([reference for trial in sample for reference in trial.data_sets], root, offline=False, tell=print)
    if (again / FILE).exists():
        raise UserError(f"{again}: holds a verification already; give another --out, or remove it")
    faults = []
    for trial in sample:
        module = sibling(type(trial), "trained")
        if module and (fault := module.contradictions(trial, records[trial.id], folder, root)) is not None:
            print(f"kept weights of {trial.id}: {fault or 'evaluated and audited again, as recorded'}")
            faults += [f"kept weights of {trial.id}: {fault}"] if fault else []
    drawn, early = plan.limited(sample), [needed for trial in sample for needed in trial.prerequisites(records)]
    for place, kept in ((stated, [*sample, *early]), (again, early)):
        with writing(make_folder(place)):
            drawn.save(place)
            for name in {trial.id for trial in kept} & records.keys():
                write_record(place / "records", records[name])
    with claimed(again):
        _run_remaining(drawn, again, executor_class("local")(), RunArguments(data=root))
    comparison = compare(stated, again, other_code=True)
    return replace(comparison, damaged=(*comparison.damaged, *faults))
