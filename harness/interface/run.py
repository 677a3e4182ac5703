"""`harness.run`: run all trials of a suite without an outcome, then write the report."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.arguments import check, taking
from harness.core.records import Record, verdict
from harness.core.run_options import RunOptions
from harness.core.settings import DataRef, Progress, silent
from harness.core.trial import trial_class
from harness.execution.agenda import AgendaEntry, counted, forget_settled, outlook, ready, trials_text
from harness.execution.data import check_data
from harness.execution.executor import Following, attached_trials
from harness.execution.folder import claimed, make_folder, remove_leftovers, writing
from harness.execution.progress import FailedFast, Reporter, ReportProgress, make_reporter
from harness.interface.options import RunArguments
from harness.interface.request import Request, data_root, make_request
from harness.planning.plan import stray_records
from harness.planning.settle import Checksums
from harness.planning.suite import Source
from harness.reporting.report import ReportedResults, write_report


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
    root = data_root(options.data)

    def check_now(data: Sequence[DataRef], optional: Collection[DataRef]) -> Checksums:
        return check_data(data, root, options.offline, options.tell, optional)

    request = make_request(suite, options, check_now, options.tell, prepare=True)
    plan, folder = request.plan, request.folder
    with claimed(make_folder(folder)):
        _run_remaining(request, root, options)
        stored = request.records.read(plan.trials)
        shown: AbstractContextManager[Progress] = nullcontext(silent) if options.quiet else ReportProgress(folder.name)
        with writing(folder), shown as progress:
            results = ReportedResults.of(plan, stored.records.values(), folder, stored.damaged)
            write_report(folder, results=results, progress=progress)
        for line in stray_records(plan, folder, stored):
            options.tell(line)
    return results


def _run_remaining(request: Request, root: Path | None, options: RunArguments) -> None:
    from harness.execution.gate import check_layers
    from harness.execution.outcome import RunProvenance

    plan, folder = request.plan, request.folder
    submitted = attached_trials(folder, request.executor)
    if not submitted:
        remove_leftovers(folder)
    provenance = RunProvenance(options.host)
    entries = request.entries(provenance.digests)
    forget_settled(entries, folder)
    attached = [entry.trial for entry in entries if entry.trial.id in submitted]
    _announce(request, entries, submitted, options)
    with writing(folder):
        plan.save(folder)
        provenance.save(folder)
    if not attached and not any(entry.runs for entry in entries):
        return
    run_options = RunOptions(
        out=folder,
        root=root,
        timeout=plan.timeout if options.timeout is None else options.timeout,
        memory=plan.memory if options.memory is None else options.memory,
        checkpoint=options.checkpoint,
        stale=options.stale,
        host=options.host,
    )

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
    run_options = replace(run_options, checks=check_layers(left, options.unchecked, options.tell))
    # What a trial waits for, such as the candidates of its tuning, runs in an earlier pass.
    while (wave := ready(entries, attempted)) or attached:
        attempted |= {trial.id for trial in wave}
        try:
            request.executor.run(wave, attached, run_options, following)
        except FailedFast:
            break
        attached, entries = [], request.entries(provenance.digests)


def _announce(
    request: Request, entries: Sequence[AgendaEntry], submitted: Collection[str], options: RunArguments
) -> None:
    """Print what the run does, and what it leaves out."""
    others = [entry for entry in entries if entry.trial.id not in submitted]
    trials, attached = [entry.trial for entry in others if entry.runs], len(entries) - len(others)
    at_once = request.executor.at_once(trials)
    options.tell(f"{request.plan.heading}: {counted(entries)}")
    for line in outlook(others, at_once, options.stale):
        options.tell(line)
    if attached:
        options.tell(f"{trials_text(attached)} of them were submitted before: this run waits for their results")
    if options.jobs is not None and trials and at_once < min(options.jobs, len(trials)):
        options.tell(f"--jobs {options.jobs}: {at_once} at once, as the threads of more would compete for the cores")
    if not trials and not attached:
        options.tell("nothing to run")
