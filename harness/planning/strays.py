"""The records in a run's folder that its report leaves out without a word elsewhere: foreign, or not readable."""

from __future__ import annotations

from pathlib import Path

from harness.core.archive import StoredRecords, folder_of, read_others
from harness.core.texts import bounded
from harness.planning.plan import Plan

SHOWN = 10


def stray_records(plan: Plan, run: Path, stored: StoredRecords | None = None) -> list[str]:
    """Return a line for each record of another suite, and each unreadable record of no trial of the plan.

    A record of the same suite with other settings is not one of them: the command that planned it uses it again.

    Args:
        stored: all records of the run, if they have been read.
    """
    planned = {trial.id for trial in plan.trials}
    suites = {plan.suite, *(trial.suite for trial in plan.trials), *(part.head.suite for part in plan.sections)}
    if stored is None:
        stored = read_others(run, plan.trials)
    lines = []
    for name in sorted({*stored.records, *stored.damaged} - planned):
        if name in stored.damaged:
            lines.append(f"left out: {folder_of(run)}/{stored.damaged[name]}")
        elif (suite := stored.records[name].trial.get("suite")) not in suites:
            lines.append(f"left out: {run}: the record of {name}, a trial of the suite {bounded(str(suite), 100)!r}")
    more = len(lines) - SHOWN
    return [*lines[:SHOWN], *([f"left out: {more} more records"] if more > 0 else [])]
