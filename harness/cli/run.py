"""`run SUITE`: run all trials without an outcome, then write and print the report."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from harness.cli.shared.options import add_plan_options, add_suite, quantity
from harness.cli.shared.request import Request, data_root, make_executor, make_request
from harness.cli.shared.runs import exit_code, print_strays, report_folder, silenced
from harness.core.errors import UserError
from harness.core.records import Record, verdict
from harness.core.run_options import CHECKPOINT_SECONDS, RunOptions, parse_bytes, parse_seconds, parse_timeout
from harness.core.settings import DataRef
from harness.core.trial import trial_class
from harness.execution.agenda import Choice, Entry, agenda, counted, forget_settled, outlook, ready, trials_text
from harness.execution.data import check_data
from harness.execution.executor import Following, attached_trials
from harness.execution.folder import claimed, make_folder, remove_leftovers, writing
from harness.execution.outcome import record_path
from harness.planning.plan import Plan
from harness.planning.settle import Checksums
from harness.planning.suite import read_suite

HELP = "run the remaining trials of a suite, then write its report"
EXAMPLES = (
    "run quickstart",
    "run quickstart --profile smoke --only layer=butterfly --set training.steps=20 --out /tmp/smoke",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_suite(parser)
    add_run_options(parser)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that runs trials."""
    add_plan_options(parser)
    parser.add_argument("--offline", action="store_true", help="download nothing; use the data that are present")
    parser.add_argument(
        "--timeout", type=quantity(parse_timeout), metavar="TIME", help="end a trial after 90, 30min, 2h (seconds)"
    )
    parser.add_argument(
        "--memory", type=quantity(parse_bytes), metavar="SIZE", help="end a trial that holds more, such as 4GiB"
    )
    parser.add_argument(
        "--checkpoint",
        type=quantity(parse_seconds),
        default=CHECKPOINT_SECONDS,
        metavar="TIME",
        help="interval between checkpoints of training (default: 60 s)",
    )
    parser.add_argument("--fail-fast", action="store_true", help="stop the run at the first trial that fails")
    parser.add_argument("--unchecked", action="store_true", help="run third-party layers without check-layer")
    parser.add_argument("--host", action="store_true", help="name this machine in records")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("-q", "--quiet", action="store_true", help="print failures and a last line alone")
    amount.add_argument("-v", "--verbose", action="store_true", help="print the progress and the log of each trial")


def execute(args: argparse.Namespace) -> int:
    """Return 0 if every selected trial is ok, or unsupported where the suite declares it; else 1."""
    with silenced() if args.quiet else contextlib.nullcontext():
        request, entries = _run(args)
    if args.quiet:
        print(f"{_heading(request.plan)}: {counted(entries)}; the report is in {request.folder}")
    return exit_code(request.plan, entries)


def _heading(plan: Plan) -> str:
    return f"{plan.suite}, profile {plan.profile}, on {plan.device}"


def _run(args: argparse.Namespace) -> tuple[Request, list[Entry]]:
    """Run what is left of the request, and write its report; return the final state of each trial."""
    suite = read_suite(args.suite)
    executor = make_executor(suite, args)
    if args.profile in suite.profile_names:
        executor.prepare({part.kind for part in suite.parts.values()}, suite.data_names(args.profile))
    root = data_root(args.data)

    def check(data: Sequence[DataRef], optional: Collection[DataRef], last: Checksums) -> Checksums:
        checksums = check_data(data, root, args.offline, print, optional)
        for key, checksum in checksums.items():
            if last.get(key, checksum) != checksum:
                print(f"{key.name}: the data have changed since the last run here, so trials on them are other trials")
        return checksums

    request = make_request(suite, args, executor, check)
    gc.enable()  # a run may take days
    with claimed(make_folder(request.folder), args.host):
        _run_remaining(request, root, args)
        plan, folder = request.plan, request.folder
        stored = request.records.read(plan.trials)
        report_folder(plan, folder, stored)
        print_strays(plan, folder, stored)
    return request, agenda(plan, folder, stored=stored)


def _run_remaining(request: Request, root: Path | None, args: argparse.Namespace) -> None:
    from harness.execution.gate import Gate, leave_out_refused
    from harness.execution.progress import QuietReporter, Reporter, VerboseReporter, make_reporter
    from harness.execution.provenance import RunProvenance

    plan, folder = request.plan, request.folder
    submitted = attached_trials(folder, request.executor)
    if not submitted:
        remove_leftovers(folder)
    provenance = RunProvenance(args.host)
    choice = Choice(args.retry_failed, args.stale)
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
    print(f"{_heading(plan)}: {counted(entries)}")
    if left_out:
        print(left_out)
    for line in outlook(others, choice, at_once):
        print(line)
    if attached:
        print(f"{trials_text(len(attached))} of them were submitted before: this run waits for their results")
    if args.jobs is not None and trials and at_once < min(args.jobs, len(trials)):
        print(f"--jobs {args.jobs}: {at_once} at once, as the threads of more would compete for the cores")
    sys.stdout.flush()
    if not trials and not attached:
        print("nothing to run")
        return
    run_options = RunOptions(
        out=folder,
        root=root,
        timeout=plan.timeout if args.timeout is None else args.timeout,
        memory=plan.memory if args.memory is None else args.memory,
        checkpoint=args.checkpoint,
        stale=args.stale,
        host=args.host,
    )

    def good(record: Record) -> bool:
        return trial_class(record.trial["kind"]).accepts(verdict(record), plan.unsupported)

    def reporter_for(total: int) -> Reporter:
        if args.quiet:
            return QuietReporter(total, sys.stderr, good)
        return VerboseReporter(total, sys.stderr, folder) if args.verbose else make_reporter(total)

    stop_at = (lambda record: not good(record)) if args.fail_fast else None
    following = Following(reporter_for, stop_at, provenance.of)
    attempted = {trial.id for trial in attached}
    gate = Gate(args.unchecked)
    # What a trial waits for, such as the candidates of its tuning, runs in an earlier pass.
    while (wave := ready(entries, choice, attempted)) or attached:
        attempted |= {trial.id for trial in wave}
        run_options = replace(run_options, checks=gate.check(wave))
        with writing(folder):
            trials = leave_out_refused(wave, run_options, provenance.of)
        if args.fail_fast and len(trials) < len(wave):
            break
        request.executor.run(trials, attached, run_options, following)
        finished, attached = {trial.id for trial in (*trials, *attached)}, []
        entries = request.entries(provenance.digests)
        if args.fail_fast and exit_code(plan, [entry for entry in entries if entry.trial.id in finished]):
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
