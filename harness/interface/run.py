"""`harness.run`: run all trials of a suite without an outcome, then write the report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harness.core.archive import StoredRecords
from harness.core.arguments import check, taking
from harness.core.records import Record, verdict
from harness.core.run_options import RunOptions
from harness.core.settings import Progress, silent
from harness.core.trial import trial_class
from harness.execution.agenda import counted, forget_settled, outlook, ready, trials_text
from harness.execution.data import check_data
from harness.execution.executor import Following, attached_trials
from harness.execution.folder import claimed, make_folder, remove_leftovers, writing
from harness.execution.progress import FailedFast, Reporter, ReportProgress, make_reporter
from harness.interface.options import RunArguments, Terms
from harness.interface.plan import Request, data_root, make_request
from harness.planning.plan import Plan, stray_records
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

    check_now = partial(check_data, root=root, offline=options.offline, tell=options.tell)
    request = make_request(suite, options, check_now, options.tell, prepare=True)
    plan, folder = request.plan, request.folder
    with claimed(make_folder(folder)):
        run_remaining(request, root, options)
        progress = silent if options.quiet else ReportProgress(folder.name)
        return reported(plan, folder, request.records(), progress, options.tell)


def run_remaining(request: Request, root: Path | None, options: RunArguments) -> None:
    """Run the trials in passes, as some wait for others, such as for the candidates of their tuning."""
    from harness.execution.gate import check_layers
    from harness.execution.outcome import RunProvenance

    plan, folder, executor = request.plan, request.folder, request.executor
    submitted = attached_trials(folder, executor)
    if not submitted:
        remove_leftovers(folder)
    provenance = RunProvenance(options.host)
    entries = request.entries(provenance.digests)
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
        root=root,
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
        attached, entries = [], request.entries(provenance.digests)


def reported(
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
