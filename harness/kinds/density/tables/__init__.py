"""Tables of density suites, one per file."""

from __future__ import annotations

from harness.kinds.density.likelihoods import UNITS, ranking
from harness.kinds.density.tables.choices import choices_table
from harness.kinds.density.tables.cost import cost_table
from harness.kinds.density.tables.differences import differences_table, leads_table
from harness.kinds.density.tables.events import events_table
from harness.kinds.density.tables.fidelity import fidelity_table
from harness.kinds.density.tables.likelihoods import likelihoods_table, published_table
from harness.reporting.frame import Results
from harness.reporting.tables.rendering import Table


def tables(results: Results) -> list[Table]:
    """Return likelihoods, test events, differences, leads and costs.

    Published numbers stand beside them under the published protocol, otherwise in a table of their own.
    """
    plan = results.plan
    quoted = plan.published if plan.published is not None and plan.published.measure in UNITS else None
    beside = quoted if plan.profile == "paper" else None
    labels = (*plan.columns, *plan.means)
    rankings = {label: ranking(results, label) for label in labels}
    made = [
        likelihoods_table(results, rankings, beside),
        choices_table(results),
        events_table(results),
        differences_table(results, rankings),
        leads_table(results),
        fidelity_table(results),
        cost_table(results),
        published_table(plan, quoted) if quoted is not None and beside is None else None,
    ]
    return [table for table in made if table is not None]
