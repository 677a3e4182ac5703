"""The candidate that validation chooses for a trial under tuning, from the records of its candidates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.records import Record, Status, read_record, verdict
from harness.kinds.density.trial import DensityTrial, as_text
from harness.kinds.density.tuning.strategy import validation


class NoChoice(Exception):
    """No candidate has a valid likelihood; carries the status and the reason of the trial's record."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Chosen:
    """The chosen candidate: its number, the number of candidates that ran, its changes of settings, and its check.

    `check` is the column of the same name, the outcome of check-layer for a third-party layer.
    """

    number: int
    candidates: int
    changes: Mapping[str, Any]
    check: str | None = None

    @property
    def text(self) -> str:
        """The changes as JSON."""
        return as_text(self.changes)


def choose(trial: DensityTrial, out: Path) -> Chosen:
    """Return the choice of validation for a trial under tuning.

    Raises:
        NoChoice: no candidate has a valid likelihood.
        UserError: a candidate has no readable record in `out/records`.
    """
    records: dict[str, Record] = {}
    for candidate in trial.candidates:
        path = out / "records" / f"{candidate.id}.json"
        if path.exists():
            records[candidate.id] = read_record(path, candidate)
    run = trial.prerequisites(records)
    for candidate in run:
        if candidate.id not in records:
            raise UserError(f"candidate {candidate.id} of the tuning has no record; run the suite again")
    number, last = trial.choice(records), {candidate.candidate: candidate for candidate in run}
    if number is None or trial.tuning is None:
        outcomes = [records[c.id] for c in last.values() if not (c.short and validation(records[c.id]) is not None)]
        counts = Counter(verdict(record) for record in outcomes)
        (status, _), *others = counts.most_common()
        early = {"ended early": len(last) - len(outcomes)} if len(outcomes) < len(last) else {}
        listed = ", ".join(f"{count} {state}" for state, count in (*counts.most_common(), *early.items()))
        reasons = (record.reason or record.rows[0].get("audit_reason") for record in outcomes)
        reason = next(filter(None, reasons), "no reason given")
        if set(counts) == {"unsupported"}:
            raise NoChoice("unsupported", reason)
        same = not others and status == "diverged"
        raise NoChoice(outcomes[0].status if same else "error", f"no candidate of the tuning won ({listed}): {reason}")
    check = records[last[number].id].rows[0].get("check")
    return Chosen(number, len(last), dict(trial.tuning.candidates[number]), check)
