"""What the records say of a claim: one judge for each kind of test, named by `judge` in a suite of claims.

A judge sees the plan of the claim's suite, the lines of its results and its records, all of whose trials have run. It
states numbers that are in them, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.core.records import Record
from harness.kinds.claims.judges_layers import block_determinant, mixing, parameters, runtime
from harness.kinds.claims.judges_training import accounting, ranked, settings, singularity
from harness.kinds.claims.verdicts import Verdict
from harness.reporting.tables.cells import Line

if TYPE_CHECKING:
    from harness.planning.plan import Plan

Judge = Callable[["Plan", Sequence[Line], Sequence[Record]], Verdict]

JUDGES: dict[str, Judge] = {
    "accounting": accounting,
    "parameters": parameters,
    "mixing": mixing,
    "block_determinant": block_determinant,
    "singularity": singularity,
    "runtime": runtime,
    "ranked": ranked,
    "settings": settings,
}
"""The names that `judge` may take."""
