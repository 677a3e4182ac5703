"""Suites of claims: other suites, with a judge that compares their results with each claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.kinds import Kind
from harness.core.trial import Trial
from harness.kinds.claims.suite import ClaimsSuite

if TYPE_CHECKING:
    from harness.reporting.frame import Results
    from harness.reporting.report import SuiteReport


class ClaimsKind(Kind, name="claims"):
    """Suites that join the trials of others; there are no trials of this kind."""

    suite = ClaimsSuite
    trial = Trial

    def report(self, results: Results) -> SuiteReport:
        """Return the verdicts, then a section for each claim."""
        from harness.kinds.claims.report import ClaimsReport

        return ClaimsReport(results)
