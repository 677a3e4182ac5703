"""Candidates of a tuning: train a flow with one candidate's settings and report its validation likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from harness.core.kinds import IDENTITY, KINDS, ORIGIN, OUTCOME, Dependencies, Kind
from harness.core.records import AUDIT_FAILED, Record
from harness.kinds.density.result import result_fault
from harness.kinds.tuning.result import MEASURES
from harness.kinds.tuning.trial import CandidateTrial


class TuningKind(Kind, name="tuning"):
    """Train one flow with the settings of a candidate; density suites plan these trials before their own."""

    trial = CandidateTrial
    deterministic = True
    losses: ClassVar[frozenset[str]] = frozenset({"diverged", "unsupported", AUDIT_FAILED})
    columns = IDENTITY | {"candidate": "Int64"} | OUTCOME | MEASURES | ORIGIN

    def depends_on(self, trial: CandidateTrial) -> Dependencies:
        """Return the source of a density trial."""
        return KINDS["density"].depends_on(trial)

    def fault(self, trial: CandidateTrial, record: Record) -> str | None:
        """See `Kind.fault`."""
        return result_fault(record) or super().fault(trial, record)

    def similar(self, trial: Mapping[str, Any]) -> list[tuple[list[Any], float]]:
        """Return the same as for a density trial."""
        return KINDS["density"].similar(trial)
