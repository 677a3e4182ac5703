"""The comparisons of all pairs of layers of a run, as its kind makes them."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from harness.core.errors import UserError
from harness.reporting.frame import Results
from harness.reporting.report import report_of


def comparisons(folder: Path, margin: float | None = None) -> pd.DataFrame:
    """See `harness.comparisons`."""
    if margin is not None and not 0 < margin < math.inf:
        raise UserError(f"margin {margin!r}: expected a positive number of nats or bits per dimension, such as 0.01")
    results = Results.read(folder)
    frame = report_of(results).comparisons(margin)
    if frame is None:
        raise UserError(
            f"{folder} is of kind {results.plan.kind}, whose layers are not compared in pairs; give a run of a suite "
            "that compares likelihoods"
        )
    return frame
