"""Facts for the page: every trial with its audit, and the origin of the results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.records import Record
from harness.reporting.frame import Results, shortened_reason
from harness.reporting.tables.cells import EMPTY

if TYPE_CHECKING:
    from harness.planning.plan import Plan

DIGITS_OF_COMMIT = 10
UNLISTED = ("host", "sources")  # of an environment

_NAME = r"[^\s/:'\"`]+(?:(?<![,;.!?])[ ]+[^\s/:'\"`]+)*"  # of a folder
_PATH = re.compile(rf"(?:(?<=['\"`])/(?:[^/'\"`\n]+/)+|(?:\bfile://|(?<![\w./]))/(?:{_NAME}/)+)")

AUDIT = ("audit", "log-det error, nats", "inverse error", "condition", "layers audited")
TRIAL_COLUMNS = ("kind", "place", "layer", "repetition", "status", *AUDIT, "seconds")


@dataclass(frozen=True)
class TrialRow:
    """One trial in the list of the page."""

    id: str
    cells: tuple[str, ...]  # a text per column of `TRIAL_COLUMNS`
    good: bool  # its status is ok, or unsupported in a suite that accepts this
    reasons: tuple[str, ...]  # of a failure, and the faults of the audit


def trial_rows(results: Results) -> list[TrialRow]:
    """Return the planned trials in the order of the plan, but for candidates of a tuning that ended without a fault.

    There may be thousands of these, and they have no place in a ranking; they are in the raw numbers.
    """
    plan, states, reasons = results.plan, results.statuses, _reasons(results)
    rows = []
    for trial in plan.trials:
        record, state = results.records.get(trial.id), states[trial.id]
        if trial.losses and state in ("ok", "unsupported") and not _audit_reasons(record):
            continue
        faults = dict.fromkeys([*reasons.get(trial.id, []), *_audit_reasons(record)])
        seconds = EMPTY if record is None or record.seconds is None else f"{record.seconds:.1f}"
        cells = (trial.kind, trial.place, ", ".join(trial.rows), trial.repeat, state, *_audit_cells(record), seconds)
        good = trial.accepts(state, plan.unsupported)
        rows.append(TrialRow(trial.id, cells, good, tuple(without_paths(shortened_reason(text)) for text in faults)))
    return rows


def _audit_cells(record: Record | None) -> tuple[str, ...]:
    audit = {} if record is None else record.audit
    if not audit:
        return (EMPTY,) * len(AUDIT)
    numbers = (_number(audit.get(name)) for name in ("logdet_error", "inverse_error", "condition"))
    layers = audit.get("linear_layers", 0)
    return audit["verdict"], *numbers, f"{audit.get('audited_layers', 0)} of {layers}" if layers else EMPTY


def _number(value: float | None) -> str:
    return EMPTY if value is None else f"{value:.2g}"


def _reasons(results: Results) -> dict[str, list[str]]:
    """Return the reasons of failed rows by trial; a trial of several layers says whose."""
    failed = results.frame[(results.frame["status"] != "ok") & results.frame["reason"].notna()]
    of_layers = {trial.id for trial in results.plan.trials if "layer" in trial.cases[0]}
    whose = (failed["layer"] + ": ").where(failed["id"].isin(of_layers), "")
    return {name: list(texts) for name, texts in (whose + failed["reason"]).groupby(failed["id"])}


def _audit_reasons(record: Record | None) -> list[str]:
    audit = {} if record is None else record.audit
    not_audited = audit.get("not_audited", {}).items()
    return [*audit.get("reasons", []), *(f"{path} is not audited: {why}" for path, why in not_audited)]


def without_paths(text: str) -> str:
    """Return the text with an ellipsis in place of folders of a machine; names of files stay.

    The name of a folder may hold spaces. A path in quotes ends with them; without quotes, everything up to the last
    slash of the clause is taken for part of it: better to lose a word than to keep a name.
    """
    return _PATH.sub("…/", text) if "/" in text else text


def environment_rows(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return (name, value) of the environments in the records; where they differ, with the number of trials of each."""
    environments = [_environment(record) for record in records]
    rows = []
    for name in dict.fromkeys(name for environment in environments for name in environment):
        counts = Counter(environment[name] for environment in environments if name in environment)
        if len(counts) == 1:
            rows.append((name, next(iter(counts))))
        else:
            texts = (f"{value} ({count} trial{'s' * (count > 1)})" for value, count in counts.items())
            rows.append((name, "; ".join(texts)))
    started = sorted(record.started for record in records if record.started)
    if started:
        first, last = (text.replace("T", " ").replace("+00:00", " UTC") for text in (started[0], started[-1]))
        rows.append(("started", first if first == last else f"{first} to {last}"))
    seconds = [record.seconds for record in records if record.seconds is not None]
    if seconds:
        rows.append(("time of all trials", f"{sum(seconds):,.0f} s"))
    return rows


def _environment(record: Record) -> dict[str, str]:
    """Return the facts of a record's environment by dotted name, but for its host and the digests of files."""
    facts: dict[str, Any] = {}
    for name, value in record.environment.items():
        if isinstance(value, dict) and name not in UNLISTED:
            facts |= {f"{name}.{inner}": fact for inner, fact in value.items()}
        elif name not in UNLISTED:
            facts[name] = value
    return {name: without_paths(str(value)) for name, value in facts.items() if value is not None}


def rebuild_lines(plan: Plan, records: Sequence[Record]) -> list[str]:
    """Return the commands that make this report again, for a shell in a clone of the project."""
    commits = {record.environment.get("git", {}).get("commit") for record in records if record.environment.get("git")}
    lines = [f"git checkout {commit[:DIGITS_OF_COMMIT]}" for commit in commits if commit] if len(commits) == 1 else []
    return [*lines, "pip install -e .", plan.command or f"python -m harness run {plan.suite} --profile {plan.profile}"]
