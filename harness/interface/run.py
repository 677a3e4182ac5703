"""`harness.run`: run all trials of a suite without an outcome, then write the report."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.errors import UserError
from harness.core.records import Record, verdict
from harness.core.run_options import CHECKPOINT_SECONDS, RunOptions, parse_bytes, parse_seconds, parse_timeout
from harness.core.settings import DataRef, Progress, silent
from harness.core.trial import trial_class
from harness.execution.agenda import Choice, all_accepted, counted, forget_settled, outlook, ready, trials_text
from harness.execution.data import check_data
from harness.execution.executor import Following, attached_trials
from harness.execution.folder import claimed, make_folder, remove_leftovers, writing
from harness.execution.outcome import record_path
from harness.interface.options import PlanOptions, Texts, quantity
from harness.interface.request import Request, data_root, make_executor, make_request
from harness.planning.plan import Plan, stray_records
from harness.planning.settle import Checksums
from harness.planning.suite import Source, read_suite
from harness.reporting.frame import Results
from harness.reporting.report import write_report


@dataclass(frozen=True)
class _Manner:
    """The arguments of `run` that say how trials run and what is printed."""

    timeout: float | None
    memory: int | None
    checkpoint: float
    fail_fast: bool
    host: bool
    quiet: bool
    verbose: bool

    def tell(self, line: str) -> None:
        """Print a line, unless the run is quiet."""
        if not self.quiet:
            print(line, flush=True)


def run(
    suite: Source,
    *,
    profile: str = "quick",
    out: str | Path = "reports",
    device: str = "auto",
    data: str | Path | None = None,
    jobs: int | None = None,
    executor: str = "local",
    cluster: Texts = (),
    retry_failed: bool = False,
    stale: str = "keep",
    seeds: int | None = None,
    only: Texts = (),
    settings: Texts = (),
    layers: str | Sequence[str] = (),
    offline: bool = False,
    timeout: float | str | None = None,
    memory: int | str | None = None,
    checkpoint: float | str = CHECKPOINT_SECONDS,
    fail_fast: bool = False,
    unchecked: bool = False,
    host: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> Results:
    """Run the trials of a suite that have no outcome yet, write the report, and return the results.

    The folder `out/<suite>` is that of `python -m harness run`. A trial that fails is a row of the results; see
    `Results.ok` and `Results.statuses`. After an interruption the same call resumes. Trials run in processes of their
    own, so a script needs no `if __name__ == "__main__"`.

    Args:
        suite: the name of a packaged suite, the path of a suite file, or a mapping with the content of one.
        profile: the size of the suite.
        out: the folder of all runs.
        device: "auto", "cpu" or "cuda".
        data: the folder of the data sets; by default $INVERTBENCH_DATA.
        jobs: trials at once; by default as many as have room.
        executor: where trials run: "local" or a cluster.
        cluster: changes of the resources that jobs request from it: {"time": "2h"}, or texts such as "time=2h".
        retry_failed: also run failed trials again.
        stale: "keep" or "rerun" records whose source has changed since.
        seeds: the number of seeds, in place of the profile's.
        only: run and report only these: {"layer": ["butterfly", "conv1x1"]}, or texts such as "layer=butterfly".
        settings: changes of settings: {"training.steps": 100}, or texts such as "training.steps=100" (`--set`).
        layers: third-party layers that become rows, such as "FILE.py:CLASS" (`--layer`).
        offline: download nothing.
        timeout: of a trial, in seconds or such as "30min".
        memory: of a trial, in bytes or such as "4GiB".
        checkpoint: interval between checkpoints of training, in seconds or such as "5min".
        fail_fast: stop at the first trial that fails.
        unchecked: run third-party layers without check-layer.
        host: name this machine in records.
        quiet: print failures alone.
        verbose: print the progress and the log of each trial.

    Raises:
        UserError: an argument or the suite (SuiteError) is wrong, data are missing (DataMissing) or damaged
            (DataError), or the folder cannot be used; nothing has run.
        KeyboardInterrupt: finished trials keep their records, and the same call resumes.
    """
    options = PlanOptions.checked(
        profile=profile,
        out=out,
        device=device,
        data=data,
        jobs=jobs,
        executor=executor,
        cluster=cluster,
        retry_failed=retry_failed,
        stale=stale,
        seeds=seeds,
        only=only,
        settings=settings,
        layers=layers,
        unchecked=unchecked,
    )
    if quiet and verbose:
        raise UserError("quiet and verbose: exclude each other; leave one out")
    limits = quantity("timeout", timeout, parse_timeout), quantity("memory", memory, parse_bytes)
    period = quantity("checkpoint", checkpoint, parse_seconds)
    manner = _Manner(*limits, CHECKPOINT_SECONDS if period is None else period, fail_fast, host, quiet, verbose)
    return _run(suite, options, manner, offline)


def _run(source: Source, options: PlanOptions, manner: _Manner, offline: bool) -> Results:
    from harness.execution.progress import ReportProgress

    suite = read_suite(source)
    executor = make_executor(suite, options)
    if options.profile in suite.profile_names:
        executor.prepare({part.kind for part in suite.parts.values()}, suite.data_names(options.profile))
    root = data_root(options.data)

    def check(data: Sequence[DataRef], optional: Collection[DataRef], last: Checksums) -> Checksums:
        checksums = check_data(data, root, offline, manner.tell, optional)
        for key, checksum in checksums.items():
            if last.get(key, checksum) != checksum:
                manner.tell(f"{key.name}: its data have changed since the last run here, so trials on them are others")
        return checksums

    request = make_request(source, suite, options, executor, check)
    plan, folder = request.plan, request.folder
    with claimed(make_folder(folder), manner.host):
        _run_remaining(request, root, options, manner)
        stored = request.records.read(plan.trials)
        shown: AbstractContextManager[Progress] = nullcontext(silent) if manner.quiet else ReportProgress(folder.name)
        with writing(folder), shown as progress:
            results = Results.of_stored(plan, stored, folder)
            write_report(folder, results=results, progress=progress)
        for line in stray_records(plan, folder, stored):
            manner.tell(line)
    return results


def _run_remaining(request: Request, root: Path | None, options: PlanOptions, manner: _Manner) -> None:
    from harness.execution.gate import Gate, leave_out_refused
    from harness.execution.progress import QuietReporter, Reporter, VerboseReporter, make_reporter
    from harness.execution.provenance import RunProvenance

    plan, folder = request.plan, request.folder
    submitted = attached_trials(folder, request.executor)
    if not submitted:
        remove_leftovers(folder)
    provenance = RunProvenance(manner.host)
    choice = Choice(options.retry_failed, options.stale)
    entries = request.entries(provenance.digests)
    forget_settled(entries, folder)
    attached = [entry.trial for entry in entries if entry.trial.id in submitted]
    others = [entry for entry in entries if entry.trial.id not in submitted]
    trials = [entry.trial for entry in others if entry.runs(choice)]
    at_once = request.executor.at_once(trials)
    left_out = _records_left_out(folder, plan)
    with writing(folder):
        plan.save(folder)
        provenance.save(folder)
    for line in (f"{plan.heading}: {counted(entries)}", left_out, *outlook(others, choice, at_once)):
        if line is not None:
            manner.tell(line)
    if attached:
        manner.tell(f"{trials_text(len(attached))} of them were submitted before: this run waits for their results")
    if options.jobs is not None and trials and at_once < min(options.jobs, len(trials)):
        manner.tell(f"--jobs {options.jobs}: {at_once} at once, as the threads of more would compete for the cores")
    if not trials and not attached:
        manner.tell("nothing to run")
        return
    run_options = RunOptions(
        out=folder,
        root=root,
        timeout=plan.timeout if manner.timeout is None else manner.timeout,
        memory=plan.memory if manner.memory is None else manner.memory,
        checkpoint=manner.checkpoint,
        stale=options.stale,
        host=manner.host,
    )

    def good(record: Record) -> bool:
        return trial_class(record.trial["kind"]).accepts(verdict(record), plan.unsupported)

    def reporter_for(total: int) -> Reporter:
        if manner.quiet:
            return QuietReporter(total, sys.stderr, good)
        return VerboseReporter(total, sys.stderr, folder) if manner.verbose else make_reporter(total)

    stop_at = (lambda record: not good(record)) if manner.fail_fast else None
    following = Following(reporter_for, stop_at, provenance.of, manner.tell)
    attempted = {trial.id for trial in attached}
    gate = Gate(options.unchecked, manner.tell)
    # What a trial waits for, such as the candidates of its tuning, runs in an earlier pass.
    while (wave := ready(entries, choice, attempted)) or attached:
        attempted |= {trial.id for trial in wave}
        run_options = replace(run_options, checks=gate.check(wave))
        with writing(folder):
            trials = leave_out_refused(wave, run_options, provenance.of)
        if manner.fail_fast and len(trials) < len(wave):
            break
        request.executor.run(trials, attached, run_options, following)
        finished, attached = {trial.id for trial in (*trials, *attached)}, []
        entries = request.entries(provenance.digests)
        outcomes = [entry for entry in entries if entry.trial.id in finished]
        if manner.fail_fast and not all_accepted(outcomes, plan.unsupported):
            break


def _records_left_out(folder: Path, plan: Plan) -> str | None:
    """Describe what the report no longer covers when this plan replaces the folder's last one; None if nothing."""
    with contextlib.suppress(UserError):
        last = Plan.load(folder)
        planned = {trial.id for trial in plan.trials}
        gone = [trial for trial in last.trials if trial.id not in planned and record_path(folder, trial).exists()]
        if gone:
            return (
                f"the last command here (profile {last.profile}, {last.device}) had other settings: "
                f"{trials_text(len(gone))} of it with records stay in records/, and are not in this report; the same "
                "command brings them back"
            )
    return None
