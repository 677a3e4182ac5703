"""The answer of a suite that counts parameters: the smallest models, and whether published counts are met."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from harness.reporting.frame import Results, groups_of
from harness.reporting.page.answer import Answer, Finding, Tone, listed


def answer(results: Results) -> Answer | None:
    """Return a finding per data set; None before anything was counted."""
    findings = tuple(_findings(results))
    return Answer(findings) if findings else None


def _findings(results: Results) -> Iterator[Finding]:
    for column, models in groups_of(results.frame, "dataset"):
        counted = models[models["parameters"].notna()]
        if counted.empty:
            continue
        text = "; ".join(_fewest(width, group) for width, group in sorted(groups_of(counted, "width")))
        quoted = counted[counted["published"].notna()]
        equal = int((quoted["parameters"] == quoted["published"]).sum())
        tone: Tone = "good" if equal == len(quoted) else "part" if equal else "bad"
        verdict = "counted" if quoted.empty else f"{equal} of {len(quoted)} as published"
        yield Finding(column, verdict, tone, f"Fewest parameters: {text}.")


def _fewest(width: int, models: pd.DataFrame) -> str:
    least = models["parameters"].min()
    rows = list(models.loc[models["parameters"] == least, "layer"])
    return f"at width {width} {listed(rows)} with {least:,}"
