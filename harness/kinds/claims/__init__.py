"""Suites of claims: other suites, with a judge that compares their results with each claim."""

from __future__ import annotations

from harness.core.kinds import Kind
from harness.core.trial import Trial
from harness.kinds.claims.suite import ClaimsSuite


class ClaimsKind(Kind, name="claims"):
    """Suites that join the trials of others; there are no trials of this kind."""

    suite = ClaimsSuite
    trial = Trial
