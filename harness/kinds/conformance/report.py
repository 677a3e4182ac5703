"""The report of a suite that checks layers."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from harness.kinds.conformance.tables import tables
from harness.reporting.page.answer import Answer, Finding, Tone, listed
from harness.reporting.report import Report
from harness.reporting.tables.rendering import Table


class ConformanceReport(Report, kind="conformance"):
    """See the module."""

    @cached_property
    def tables(self) -> list[Table]:
        """The tables, in order."""
        return tables(self.results)

    @cached_property
    def answer(self) -> Answer | None:
        """The layers that conform and those that do not; None before any was checked."""
        conforms = self.results.frame.dropna(subset="conforms").groupby("layer", sort=False)["conforms"].all()
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
