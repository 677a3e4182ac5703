"""One judge for each kind of test of a claim, named by `judge` in a suite of claims.

A judge is given the results of the claim's suite, all of whose trials have run. It states numbers that are in them, and
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.kinds.claims.judges_layers import block_determinant, mixing, parameters, runtime
from harness.kinds.claims.judges_training import accounting, ranked, settings, singularity
from harness.kinds.claims.verdicts import Verdict
from harness.reporting.frame import Results

Judge = Callable[[Results], Verdict]

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
