"""Average ranks of the layers over data sets, with bars over those that no test tells apart (Demsar, 2006)."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.kinds.density.across import AcrossDatasets, across
from harness.reporting.figures.figure_style import INK, footnotes, looks, plain
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import SIGNIFICANCE, p_text

HEADING = "Across data sets"
ORDER = 0

WIDTH, LINE = 4.6, 0.21  # inches: of the figure, which a phone shows whole; height of a layer or a bar


def figures(results: Results) -> dict[str, Figure]:
    """Return the diagram; none with fewer than three data sets that rank the same layers."""
    compared = across((results,))
    return {} if compared is None else {"critical-difference": diagram(compared)}


def diagram(compared: AcrossDatasets) -> Figure:
    """Return the critical-difference diagram of the layers over all data sets."""
    from scikit_posthocs import critical_difference_diagram  # takes seconds to import

    standings = compared.together
    ranks = standings.average_ranks
    labels = [plain(str(layer)) for layer in ranks.index]
    # Without a test there are no bars: every pair counts as apart.
    p_values = pd.DataFrame(0.0, ranks.index, ranks.index) if standings.pairs is None else standings.pairs
    p_values = p_values.loc[ranks.index, ranks.index].set_axis(labels).set_axis(labels, axis="columns")
    colours = {plain(row): look.colour for row, look in looks(compared.plan).items()}
    figure = Figure(figsize=(WIDTH, LINE * (len(ranks) / 2 + 5)))
    figure.set_layout_engine("constrained")
    axes = figure.add_subplot()
    axes.grid(False)
    drawn = critical_difference_diagram(
        ranks.set_axis(labels),
        p_values,
        alpha=SIGNIFICANCE,
        ax=axes,
        label_fmt_left="{label}  {rank:.2f} ",
        label_fmt_right=" {rank:.2f}  {label}",
        label_props={"fontsize": 8.5},
        marker_props={"s": 28},
        elbow_props={"linewidth": 1.2},
        crossbar_props={"color": INK, "linewidth": 3.0},
        color_palette={label: colours[label] for label in labels},
        text_h_margin=0.1,
    )
    for (bar,) in drawn["crossbars"]:  # drawn in the order of a set, which differs between processes
        bar.set_xdata(sorted(bar.get_xdata()))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(plain(f"Average rank over {len(standings.means)} data sets, 1 is best"), pad=18)
    footnotes(figure, _notes(compared, bool(drawn["crossbars"])))
    return figure


def _notes(compared: AcrossDatasets, bars: bool) -> list[str]:
    standings = compared.together
    notes = []
    if standings.friedman is not None:
        notes.append(f"Friedman's test that all are equal: {p_text(standings.friedman.p)}")
    if standings.pairs is None:
        return [*notes, "no bars: pairs are not tested, as no controls give their differences one scale"]
    if bars:
        notes.append(
            "bars join layers that do not differ significantly: Wilcoxon's signed-rank test of shares of the controls' "
            f"distance on {len(standings.effects)} data sets, Holm's correction for {standings.comparisons} pairs"
        )
    if not standings.decidable:
        notes.append("so few data sets cannot show any pair to differ, whatever was measured")
    return notes
