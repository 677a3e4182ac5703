"""The state of each planned trial, and whether a run executes it (again)."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from harness.core.archive import StoredRecords, read_records
from harness.core.checkpoint_files import checkpoint_folder, newest_header
from harness.core.provenance.sources import changes
from harness.core.records import AUDIT_FAILED, Record, verdict
from harness.core.run_options import Stale, shown_seconds
from harness.core.texts import first_few
from harness.core.trial import Trial, trial_class
from harness.execution.outcome import interrupted

if TYPE_CHECKING:
    from harness.planning.plan import Plan

MISSING = "to run"
DAMAGED = "damaged"
CHANGES = 3  # of a source, that a line names
GOOD = frozenset({"ok", "unsupported", AUDIT_FAILED})
COMPLETED = ("ok", "unsupported", "diverged")  # statuses of trials that ended by themselves

AtOnce = Callable[[Sequence[Trial]], int]  # how many of these trials run at once
Digests = Callable[[Trial], Mapping[str, str]]
"""Function from a trial to the digests of its current source (see `harness.core.provenance.sources`)."""


class Experience:
    """Durations of finished trials; an estimate is the mean of the most similar ones (see `Trial.similar`)."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = records

    @cached_property
    def _times(self) -> dict[str, list[tuple[float, float]]]:
        """Key -> durations divided by the work, and those that do not grow with it; made when the first trial asks."""
        times: dict[str, list[tuple[float, float]]] = {}
        for record in self._records:
            if record.status in COMPLETED and record.seconds is not None:
                with contextlib.suppress(KeyError, TypeError, ValueError):  # written by a version with other settings
                    fixed = min(trial_class(record.trial["kind"]).fixed_seconds(record.rows), record.seconds)
                    for key, work in _keys(record.trial):
                        times.setdefault(key, []).append(((record.seconds - fixed) / work, fixed))
        return times

    def seconds(self, trial: Trial) -> float | None:
        """Return the estimated duration of a trial; None without a similar trial."""
        for key, work in _keys(trial.model_dump(mode="json")) if self._times else ():
            if key in self._times:
                growing, fixed = zip(*self._times[key], strict=True)
                return fmean(growing) * work + fmean(fixed)
        return None


def _keys(trial: dict[str, Any]) -> list[tuple[str, float]]:
    """Return keys that similar trials share, the most similar first, each with the work by which to divide the time."""
    common, similar = [trial["device"], trial["threads"]], trial_class(trial["kind"]).similar(trial)
    return [(json.dumps([*common, *key], sort_keys=True), work) for key, work in similar]


@dataclass(frozen=True)
class AgendaEntry:
    """One planned trial and its state."""

    trial: Trial
    state: str  # a status, "audit failed", `MISSING` or `DAMAGED`
    reason: str | None = None  # explanation of a state that is not ok
    interrupted: bool = False  # it was ended from outside, so that its record carries no result
    stale: tuple[str, ...] = ()  # changes of its source since its record, or since the checkpoint that it resumes from
    step: int | None = None  # of that checkpoint; None: it would start from the beginning
    share_left: float = 1.0  # of its work, from that step on
    seconds: float | None = None  # estimated remaining time; None: unknown, or the trial does not run
    runs: bool = True  # whether a run executes it
    after: frozenset[str] = frozenset()  # ids of the trials that need an outcome before this one can run
    missing: int = 0  # number of them without an outcome

    @property
    def open(self) -> bool:
        """True if the trial has no outcome yet."""
        return self.interrupted or self.state in (MISSING, DAMAGED)

    @property
    def failed(self) -> bool:
        """True if the trial ended by itself without a good result."""
        return not self.open and self.state not in GOOD | self.trial.losses

    def text(self) -> str:
        """The state as text: "ok", "failed: oom", "to run, from step 400", "ok, stale: layers/fast.py changed"."""
        parts = [f"failed: {self.state}" if self.failed else self.state]
        if self.interrupted:
            parts.append("runs again")
        if self.step is not None and (self.open or self.failed):
            parts.append(f"from step {self.step}")
        if self.open and self.missing:
            parts.append(f"after {trials_text(self.missing)}{' or more' if self.trial.open_ended else ''}")
        if self.stale:
            parts.append(f"{'stale' if not self.open else 'its checkpoint is stale'}: {first_few(self.stale, CHANGES)}")
        return ", ".join(parts)


def agenda(
    plan: Plan,
    folder: Path,
    digests: Digests | None = None,
    stored: StoredRecords | None = None,
    *,
    retry_failed: bool = False,
    stale: Stale = "keep",
) -> list[AgendaEntry]:
    """Return every trial of a plan that is due with its state in a folder; without digests, no record is stale.

    `retry_failed` and `stale` are the options of `run`, for trials that have a record.
    """
    if stored is None:
        stored = read_records(folder, plan.trials, others=True)
    experience = Experience(stored.records.values())
    settled = {name: record for name, record in stored.records.items() if not interrupted(record)}
    entries = []
    for trial in plan.due(settled):
        entry = _entry(trial, folder, stored, digests, settled)
        runs = entry.open or (entry.failed and retry_failed) or (bool(entry.stale) and stale == "rerun")
        whole = experience.seconds(trial) if runs else None
        entries.append(replace(entry, runs=runs, seconds=None if whole is None else whole * entry.share_left))
    return entries


def ready(entries: Sequence[AgendaEntry], attempted: Container[str]) -> list[Trial]:
    """Return the trials that a run executes next: all that wait for no other, in order.

    Args:
        attempted: ids of the trials that this run has executed, or waits for on a cluster.
    """
    waiting = {entry.trial.id for entry in entries if entry.runs and entry.trial.id not in attempted}
    blocked = waiting | {entry.trial.id for entry in entries if entry.open}
    return [entry.trial for entry in entries if entry.trial.id in waiting and not entry.after & blocked]


def forget_settled(entries: Sequence[AgendaEntry], folder: Path) -> None:
    """Remove the checkpoints of trials that have a record, left by a process that was killed between the two."""
    for entry in entries:
        if entry.state in GOOD and not entry.stale:
            shutil.rmtree(checkpoint_folder(folder, entry.trial.id), ignore_errors=True)


def _entry(
    trial: Trial, folder: Path, stored: StoredRecords, digests: Digests | None, settled: Mapping[str, Record]
) -> AgendaEntry:
    record, damage = stored.records.get(trial.id), stored.damaged.get(trial.id)
    cut = record is not None and interrupted(record)
    header = newest_header(folder, trial.id)
    before = None if header is None else header.sources
    if record is not None and not cut:
        before = record.environment.get("sources")
    stale: tuple[str, ...] = ()
    if digests is not None and isinstance(before, dict) and before:  # digests take a second, to read every file
        stale = tuple(changes(before, digests(trial)))
    if trial.id in settled and (why := trial.outdated(settled[trial.id], settled)) is not None:
        stale = (why, *stale)
    state, reason = MISSING if damage is None else DAMAGED, damage
    if record is not None:
        reasons = [record.reason, *(row.get("audit_reason") for row in record.rows)]
        state, reason = verdict(record), " ".join((next(filter(None, reasons), None) or "no reason given").split())
    step, share = (None, 1.0) if header is None else (header.step, 1 - header.step / max(1, header.steps))
    after = frozenset(early.id for early in trial.prerequisites(settled))
    missing = sum(name not in settled for name in after)
    return AgendaEntry(trial, state, reason, cut, stale, step, share, after=after, missing=missing)


def counted(entries: Sequence[AgendaEntry]) -> str:
    """Return the counts as text: `19 trials: 2 ok, 1 oom (failed before), 16 to run; 1 of them stale`."""
    counts: Counter[tuple[bool, bool, str]] = Counter()
    for entry in entries:
        note = " (failed before)" if entry.failed else " (runs again)" if entry.open and entry.state != MISSING else ""
        counts[entry.open, entry.state != "ok", f"{entry.state}{note}"] += 1
    parts = [f"{count} {state}" for (*_, state), count in sorted(counts.items())]
    stale = sum(bool(entry.stale) and not entry.open for entry in entries)
    return f"{trials_text(len(entries))}: {', '.join(parts)}" + f"; {stale} of them stale" * bool(stale)


def outlook(plan: Plan, entries: Sequence[AgendaEntry], at_once: AtOnce, stale_option: Stale = "keep") -> list[str]:
    """Return the counts, what a run would execute, how long it would take, and which options change that."""
    doing = [entry for entry in entries if entry.runs]
    damaged = [f"damaged: {entry.reason}" for entry in entries if entry.state == DAMAGED]
    lines = [f"{plan.heading}: {counted(entries)}", *damaged]
    if doing:
        more = " or more" if any(entry.missing and entry.trial.open_ended for entry in doing) else ""
        lines.append(f"a run does {trials_text(len(doing))}{more}{_time(doing, at_once)}")
    if failed := sum(entry.failed and not entry.runs for entry in entries):
        lines.append(f"{trials_text(failed)} failed before, and only --retry-failed runs them again")
    if stale := [entry for entry in entries if entry.stale]:
        named = first_few(list(dict.fromkeys(change for entry in stale for change in entry.stale)), CHANGES)
        kept = "existing results are kept; --stale rerun runs them again"
        treatment = kept if stale_option == "keep" else "they run again; --stale keep keeps existing results"
        lines.append(f"{trials_text(len(stale))} stale ({named}): {treatment}")
    return lines


def _time(entries: Sequence[AgendaEntry], at_once: AtOnce) -> str:
    """Return the time of all trials that have an estimate, so many at once, as text; empty if none has."""
    estimated = [(entry.trial.alone, entry.seconds) for entry in entries if entry.seconds is not None]
    if not estimated:
        return ""
    number = at_once([entry.trial for entry in entries])
    total = sum(seconds if alone else seconds / number for alone, seconds in estimated)
    unknown = len(entries) - len(estimated)
    rest = f", and {unknown} of unknown duration" if unknown else ""
    return f", in about {shown_seconds(total)} (from earlier trials, {number} at once{rest})"


def trials_text(count: int) -> str:
    """Return a count as text: "1 trial"."""
    return f"{count} trial{'' if count == 1 else 's'}"
