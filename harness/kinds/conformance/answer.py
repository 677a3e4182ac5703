"""The answer of a suite of conformance: the layers with and without a fault."""

from __future__ import annotations

import pandas as pd

from harness.reporting.frame import Results
from harness.reporting.page.answer import Answer, Finding, Tone, listed


def answer(results: Results) -> Answer | None:
    """Return the layers that conform and those that do not; None before any was checked."""
    conforms = results.frame.dropna(subset="conforms").groupby("layer", sort=False)["conforms"].all()
    verdicts: tuple[tuple[str, Tone, pd.Series], ...] = (
        ("faulty", "bad", ~conforms),
        ("no fault found", "good", conforms),
    )
    findings = [
        Finding(f"{len(rows)} of {len(conforms)} layers", verdict, tone, f"{listed(rows)}.")
        for verdict, tone, chosen in verdicts
        if (rows := list(conforms[chosen].index))
    ]
    return Answer(tuple(findings)) if findings else None
