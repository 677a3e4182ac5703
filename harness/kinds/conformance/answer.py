"""The answer of a suite of conformance: the layers with and without a fault."""

from __future__ import annotations

import pandas as pd

from harness.reporting.frame import Results
from harness.reporting.page.answer import Answer, Finding, Tone, listed


def answer(results: Results) -> Answer | None:
    """Return the layers that conform and those that do not; None before any was checked."""
    known = results.frame[results.frame["conforms"].notna()]
    conforming = known.groupby("layer", sort=False)["conforms"].all()
    found = [
        Finding(f"{len(rows)} of {len(conforming)} layers", verdict, tone, f"{listed(rows)}.")
        for verdict, tone, rows in _verdicts(conforming)
        if rows
    ]
    return Answer(tuple(found)) if found else None


def _verdicts(conforming: pd.Series) -> list[tuple[str, Tone, list[str]]]:
    return [
        ("faulty", "bad", list(conforming[~conforming].index)),
        ("no fault found", "good", list(conforming[conforming].index)),
    ]
