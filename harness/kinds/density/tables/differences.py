"""The paired differences below a density table: each layer's distance from the lowest mean, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping

from harness.kinds.density.likelihoods import Ranking, interval_kind
from harness.kinds.density.tuning.searches import tuning_text
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import LEAST_SEEDS
from harness.reporting.tables.cells import EMPTY
from harness.reporting.tables.rendering import Table

BEST = "lowest mean"


def differences_table(results: Results, rankings: Mapping[str, Ranking]) -> Table | None:
    """Return a row per layer, a column per data set; None where no two ranked rows share two seeds."""
    competing = {
        label: found
        for label, found in rankings.items()
        if any(difference.estimate.low is not None for difference in found.differences.values())
    }
    if not competing:
        return None
    differences = [difference for found in competing.values() for difference in found.differences.values()]
    tests = any(difference.p is not None for difference in differences)
    kind = interval_kind(differences)
    brackets = f" [{kind} 95 % interval]" if kind else ", too few for an interval,"
    rows = tuple((row, *(_cell(found, row) for found in competing.values())) for row in results.plan.rows)
    caption = (
        f"Difference from the row of the lowest mean: mean{brackets} over paired seeds. Trials of one seed share the "
        "order of the data, the noise and the initial weights of the backbone."
    )
    if tests:
        caption += (
            " p: paired t test on the differences, after Holm's correction for all pairs of rows of the column; d: "
            "mean difference in standard deviations of the differences."
        )
    else:
        caption += f" No test below {LEAST_SEEDS} seeds."
    caption += f" {tuning_text(results)}"
    remark = f"{EMPTY}: an oracle, a row that was not tuned, or not every seed has a likelihood that may be compared"
    notes = (remark,) if any(EMPTY in row for row in rows) else ()
    return Table(f"{results.plan.suite}-differences", caption, ("layer", *competing), rows, notes, detail=True)


def _cell(found: Ranking, row: str) -> str:
    if row == found.best:
        return BEST
    difference = found.behind(row)
    if difference is None:
        return EMPTY
    return difference.short() if difference.p is None else difference.text()
