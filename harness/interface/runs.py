"""`harness.run`, `report`, `merge`, `compare` and `replicate`: runs of suites, and their reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from harness.core.archive import StoredRecords, archive_of, read_records
from harness.core.arguments import Place, Places, arguments_of, check, checked, rule, taking
from harness.core.errors import UserError
from harness.core.files import write_atomically
from harness.core.records import Record, verdict
from harness.core.run_options import RunOptions
from harness.core.settings import Flag, Progress, silent
from harness.core.trial import trial_class
from harness.execution.agenda import agenda, counted, forget_settled, outlook, ready, trials_text
from harness.execution.executor import Executor, Following, attached_trials
from harness.execution.folder import claimed, make_folder, remove_leftovers, writing
from harness.execution.progress import FailedFast, Reporter, ReportProgress, make_reporter
from harness.interface.options import MERGED, Arguments, ReplicateArguments, RunArguments, Terms, texts
from harness.interface.plan import data_root, make_plan, plan
from harness.planning.plan import Plan, stray_records
from harness.planning.suite import Source, read_suite
from harness.reporting.report import ReportedResults, report_class, write_report

if TYPE_CHECKING:
    from harness.reporting.compare.comparison import Comparison
    from harness.reporting.compare.replication import Replication

STEM = "replication"


@taking(RunArguments)
def run(suite: Source, **arguments: Any) -> ReportedResults:
    """Run the trials of a suite that have no outcome yet, write the report, and return the results.

    The folder `out/<suite>` is that of `python -m harness run`. A trial that fails is a row of the results; see
    `ok` and `statuses` of the results. After an interruption the same call resumes. Trials run in processes of their
    own, so a script needs no `if __name__ == "__main__"`.

    Args:
        suite: the name of a packaged suite, the path of a suite file, or a mapping with the content of one.
        **arguments: see below.

    Raises:
        UserError: an argument or the suite (SuiteError) is wrong, data are missing (DataMissing) or damaged
            (DataError), or the folder cannot be used; nothing has run.
        KeyboardInterrupt: finished trials keep their records, and the same call resumes.
    """
    options = check(RunArguments, arguments)
    plan, folder, executor = make_plan(suite, options, options.offline, options.tell, prepare=True)
    with claimed(make_folder(folder)):
        run_remaining(plan, folder, executor, options)
        progress = silent if options.quiet else ReportProgress(folder.name)
        return _reported(plan, folder, read_records(folder, plan.trials, others=True), progress, options.tell)


def run_remaining(plan: Plan, folder: Path, executor: Executor, options: RunArguments) -> None:
    """Run the trials in passes, as some wait for others, such as for the candidates of their tuning."""
    from harness.execution.gate import check_layers
    from harness.execution.outcome import RunProvenance

    submitted = attached_trials(folder, executor)
    if not submitted:
        remove_leftovers(folder)
    provenance = RunProvenance(options.host)
    states = partial(agenda, plan, folder, provenance.digests, retry_failed=options.retry_failed, stale=options.stale)
    entries = states()
    forget_settled(entries, folder)
    attached = [entry.trial for entry in entries if entry.trial.id in submitted]
    others = [entry for entry in entries if entry.trial.id not in submitted]
    remaining = [entry.trial for entry in others if entry.runs]
    options.tell(f"{plan.heading}: {counted(entries)}")
    for line in outlook(others, executor.at_once(remaining), options.stale):
        options.tell(line)
    if attached:
        options.tell(f"{trials_text(len(attached))} of them were submitted before: this run waits for their results")
    with writing(folder):
        plan.save(folder)
        provenance.save(folder)
    if not remaining and not attached:
        options.tell("nothing to run")
        return

    def good(record: Record) -> bool:
        return trial_class(record.trial["kind"]).accepts(verdict(record), plan.unsupported)

    def reporter_for(total: int) -> Reporter:
        reporter = Reporter(total, sys.stderr, folder, good) if options.quiet else make_reporter(total, folder)
        reporter.stop_at = lambda record: options.fail_fast and not good(record)
        return reporter

    following = Following(reporter_for, provenance.of, options.tell)
    attempted = {trial.id for trial in attached}
    settled = {entry.trial.id for entry in entries if not entry.runs}
    left = (trial for trial in plan.trials if trial.id not in settled | attempted)
    run_options = RunOptions(
        out=folder,
        root=data_root(options.data),
        timeout=plan.timeout if options.timeout is None else options.timeout,
        memory=plan.memory if options.memory is None else options.memory,
        checks=check_layers(left, options.unchecked, options.tell),
        **{name: getattr(options, name) for name in ("checkpoint", "stale", "host")},
    )
    while (wave := ready(entries, attempted)) or attached:
        attempted |= {trial.id for trial in wave}
        try:
            executor.run(wave, attached, run_options, following)
        except FailedFast:
            break
        attached, entries = [], states()


def _reported(
    plan: Plan,
    folder: Path,
    stored: StoredRecords,
    progress: Progress,
    tell: Callable[[str], object],
    at: Sequence[Terms] = (),
    archive: bool = False,
) -> ReportedResults:
    """Write the report of a run from its stored records, tell what it leaves out, and return the results."""
    results = ReportedResults.of(plan, stored.records.values(), folder, stored.damaged)
    with writing(folder):
        write_report(folder, at, archive, results, progress)
    for line in stray_records(plan, folder, stored):
        tell(line)
    return results


@checked
def report(
    folder: Place, *, at: Annotated[tuple[Terms, ...], rule(texts, str | Sequence[str])] = (), archive: Flag = False
) -> ReportedResults:
    """Write the report of a run again from its records, and return the results.

    Args:
        folder: OUT/<suite>, in which a suite was run.
        at: measures for further tables of the likelihoods at equal values: "steps", "seconds", "parameters" or "width".
        archive: also write records.zip, which holds the plan and the records in one file.

    Raises:
        UserError: there is no run, its plan or a record cannot be read, or it is an archive (see `merge`).
    """
    if archive_of(folder) is not None:
        raise UserError(f"{folder}: an archive, beside which no report is written; use harness.merge([...], out)")
    progress = ReportProgress(folder.name)
    progress(0.0, "plan")
    plan = Plan.load(folder)
    progress(0.05, f"{len(plan.trials):,} trials")
    return _reported(plan, folder, read_records(folder, plan.trials, others=True), progress, print, at, archive)


@checked
def merge(
    folders: Places,
    out: Place = MERGED,
    *,
    at: Annotated[tuple[Terms, ...], rule(texts, str | Sequence[str])] = (),
    archive: Flag = False,
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
    from harness.reporting.compare.merge import merge as merge_records
    from harness.reporting.overview import FOLDER, write_overview

    for place in folders:
        for line in stray_records(Plan.load(place), place):
            print(line)
    progress = ReportProgress("merge")
    progress(0.0, f"records of {len(folders)} run{'s' * (len(folders) > 1)}")
    merged = merge_records(folders, out)
    print("\n".join(line for run in merged for line in run.lines()))
    runs = tuple(ReportedResults.of(run.plan, run.records, run.folder) for run in merged)
    for results in runs:
        with writing(results.folder):
            write_report(results.folder, at, archive, results, ReportProgress(results.folder.name))
    if len(runs) > 1:
        with writing(out / FOLDER):
            text = write_overview(out / FOLDER, runs)
        print("" if text is None else f"\n{text}\n\nin {out / FOLDER}")
    return runs


@checked
def compare(
    first: Place,
    second: Place,
    *,
    threshold: Annotated[tuple[str, ...], rule(texts, str | Sequence[str])] = (),
    other_code: Flag = False,
) -> Comparison:
    """Compare a run with an earlier one, trial by trial; in a notebook, the comparison is shown as its tables.

    Args:
        first: the folder or the archive of the earlier run.
        second: that of the later run.
        threshold: the largest changes that count as none: "0.02" for likelihoods, "10%" for times and parameters.
        other_code: also compare trials whose source differs, and report the differences.

    Raises:
        UserError: a folder without a run, or suites of different kinds.
    """
    from harness.reporting.compare.comparison import Thresholds
    from harness.reporting.compare.comparison import compare as compared

    return compared(first, second, Thresholds.parse(threshold), other_code)


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
    from harness.reporting.compare.replication import replication, replication_tables
    from harness.reporting.frame import csv_bytes
    from harness.reporting.tables.rendering import latex_tables, markdown

    options = check(ReplicateArguments, arguments)
    folder, runs = options.out, dict[str, ReportedResults]()
    if isinstance(suite, (list, tuple)):
        compared = _read_runs(suite)
    else:
        folder, compared = _run_draws(suite, options)
        runs = compared
    result = replication({name: results.comparisons() for name, results in compared.items()})
    result = replace(result, runs=runs, folder=folder)
    tables = replication_tables(result)
    content = {
        "md": "\n\n".join(map(markdown, tables)).encode() + b"\n",
        "tex": latex_tables(tables).encode() + b"\n",
        "csv": csv_bytes(result.frame.reset_index()),
    }
    with writing(folder):
        for ending, data in content.items():
            write_atomically(folder / f"{STEM}.{ending}", data)
    return result


@checked
def _read_runs(suite: Places) -> dict[str, ReportedResults]:
    """Return the results of runs, by the text of the folder or archive."""
    return {str(place): ReportedResults.read(place) for place in suite}


def _run_draws(source: Any, options: ReplicateArguments) -> tuple[Path, dict[str, ReportedResults]]:
    """Run each draw; return the folder of all and the results of each by name."""
    suite = read_suite(source)
    folder = options.out / f"{suite.suite}-draws"
    if any(text.replace(" ", "").startswith("draw=") for text in options.settings):
        raise UserError("--set draw: each draw of a replication has its own; leave it out")
    planned = plan(source, **arguments_of(Arguments, options)).plan
    if (fault := report_class(suite.kind).verdict_fault(planned)) is not None:
        raise UserError(f"{suite.suite}: has no verdict that could replicate: {fault}")
    runs = {}
    for number in range(options.draws):
        name = f"draw-{number}"
        if not options.quiet:
            print(f"{suite.suite}, {name}, in {folder / name / suite.suite}", flush=True)
        changes = {"settings": (*options.settings, f"draw={number}"), "out": folder / name}
        runs[name] = run(source, **arguments_of(RunArguments, options) | changes)
    return folder, runs
