"""Suites of claims: other suites, with a judge that compares their results with each claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.kinds import Kind
from harness.core.trial import Trial

if TYPE_CHECKING:
    from harness.kinds.claims.suite import ClaimsSuite


class ClaimsKind(Kind, name="claims"):
    """Suites that join the trials of others; there are no trials of this kind."""

    trial = Trial

    @property
    def suite(self) -> type[ClaimsSuite]:
        """See `harness.kinds.claims.suite`."""
        from harness.kinds.claims.suite import ClaimsSuite

        return ClaimsSuite
