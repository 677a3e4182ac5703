"""The lead of each layer over two 1x1 convolutions per step, and its share of the way from there to the oracle."""

from __future__ import annotations

from collections.abc import Mapping

from harness.kinds.density.leads import control_of, leads, shares
from harness.kinds.density.likelihoods import UNITS, interval_kind, units
from harness.kinds.density.tuning.searches import tuning_text
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import Difference
from harness.reporting.tables.cells import EMPTY
from harness.reporting.tables.rendering import Table


def leads_table(results: Results) -> Table | None:
    """Return a row per layer, a column per data set and another where there is an oracle; None without the control."""
    plan = results.plan
    control = control_of(plan)
    if control is None:
        return None
    found = {column: leads(results, column, control) for column in plan.columns}
    found = {column: own for column, own in found.items() if own}
    if not found:
        return None
    header, columns = ["layer"], list[dict[str, str]]()
    parts = {column: shares(results, column, control) for column in found}
    for column, own in found.items():
        header.append(f"{column}, {UNITS[units(results)[column]]} ↑")
        columns.append({row: difference.short() for row, difference in own.items()})
        if parts[column]:
            header.append(f"{column}, % of the way to the oracle ↑")
            columns.append({row: _percent(share) for row, share in parts[column].items()})
    shown = [row for row in plan.rows if any(row in own for own in columns)]
    rows = tuple((row, *(own.get(row, EMPTY) for own in columns)) for row in shown)
    caption = (
        f"Lead over {control}, the control with two 1x1 convolutions in each step: its negative log-likelihood minus "
        f"that of the layer, mean{_brackets(found)} over paired seeds; above zero the layer is better."
    )
    if any(parts.values()):
        caption += (
            f" The way to the oracle: the lead divided by that of the oracle, seed by seed, mean{_brackets(parts)}; "
            "100 is as good as knowing the permutation."
        )
    caption += f" {tuning_text(results)}"
    return Table(f"{plan.suite}-leads", caption, tuple(header), rows, detail=True)


def _brackets(found: Mapping[str, Mapping[str, Difference]]) -> str:
    differences = [difference for own in found.values() for difference in own.values()]
    tests = ", p as in the differences" if any(difference.p is not None for difference in differences) else ""
    kind = interval_kind(differences)
    return f" [{kind} 95 % interval{tests}]" if kind else ""


def _percent(share: Difference) -> str:
    text = f"{100 * share.estimate.mean:.0f}"
    if share.interval is None:
        return text
    low, high = share.interval
    return f"{text} [{100 * low:.0f}, {100 * high:.0f}]"
