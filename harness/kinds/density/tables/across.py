"""The table over the data sets of density suites, its numbers by data set, and its sentences in the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from harness.kinds.density.across import AcrossDatasets
from harness.kinds.density.comparisons import MARGIN
from harness.reporting.page.answer import Finding, listed
from harness.reporting.statistics.across import LEAST_DATASETS, LEAST_LAYERS, Friedman, Standings, smallest_p, tally
from harness.reporting.statistics.statistics import SIGNIFICANCE, p_text
from harness.reporting.tables.cells import EMPTY
from harness.reporting.tables.rendering import Table

RANK, OUTCOMES = "average rank", "wins, ties, losses"
SHOWN = 3  # layers of a family, and pairs, that a sentence names


def across_table(compared: AcrossDatasets, name: str) -> Table:
    """Return a row per layer, by average rank, with its ranks by family, its outcomes and its effect."""
    together = compared.together
    total = len(together.means)
    header, columns = ["layer", f"{RANK}, all {total} ↓"], [_averages(together)]
    if len(compared.families) > 1:
        header += [f"{RANK}, {family} ({len(part.means)}) ↓" for family, part in compared.families.items()]
        columns += [_averages(part) for part in compared.families.values()]
    groups = [("", 1), (RANK, len(columns))]
    with_leads = [column.ranking.leaders for column in compared.columns if column.ranking.leaders]
    if with_leads:
        groups.append(("", 1))
        header.append(f"not behind, of {len(with_leads)} ↑")
        columns.append({layer: str(sum(layer in leaders for leaders in with_leads)) for layer in compared.layers})
    for control in compared.controls:
        cells = {layer: _outcomes(compared, control, layer) for layer in compared.layers}
        if any(cell != EMPTY for cell in cells.values()):
            header.append(f"{OUTCOMES}, against {control}")
            columns.append(cells)
    against = len(header) - sum(span for _, span in groups)
    groups += [(OUTCOMES, against)] if against else []
    if len(together.effects):
        groups.append(("", 1))
        header.append("share of the controls' distance, median [lowest, highest] ↑")
        columns.append({layer: _effect(compared, layer) for layer in compared.layers})
    rows = tuple((layer, *(column[layer] for column in columns)) for layer in together.average_ranks.index)
    return Table(name, _caption(compared), tuple(header), rows, tuple(_notes(compared)), tuple(groups))


def _averages(standings: Standings) -> dict[str, str]:
    return {str(layer): f"{rank:.2f}" for layer, rank in standings.average_ranks.items()}


def _outcomes(compared: AcrossDatasets, control: str, layer: str) -> str:
    outcomes = compared.outcomes[control, layer]
    return ", ".join(map(str, tally(outcomes.values()))) if outcomes else EMPTY


def _effect(compared: AcrossDatasets, layer: str) -> str:
    effects = compared.together.effects[layer]
    if layer == compared.reference:
        return EMPTY
    return f"{effects.median():+.2f} [{effects.min():+.2f}, {effects.max():+.2f}]"


def _caption(compared: AcrossDatasets) -> str:
    total = len(compared.columns)
    parts = [
        f"The layers over {total} data sets ({listed([column.label for column in compared.columns])}). Average rank: "
        "by mean negative log-likelihood within each data set, 1 for the lowest; equal means share their ranks.",
    ]
    if any(column.ranking.leaders for column in compared.columns):
        parts.append(
            "Not behind: data sets, of those whose leads have intervals, on which the layer has the lowest mean or is "
            "not shown to differ from it."
        )
    if compared.controls:
        parts.append(
            "Wins, ties and losses: data sets on which the layer is better than the control, not shown to differ or by "
            f"less than {MARGIN:.0%} of the distance between the best and the worst control, and worse."
        )
    if len(compared.together.effects):
        number = len(compared.together.effects)
        count = "" if number == total else f" on {number} of them"
        parts.append(
            f"Share: the lead over {compared.reference} divided by the distance between the best and the worst control "
            f"of the same data set{count}, which makes nats and bits comparable; 1 is as far ahead as the controls are "
            "apart."
        )
    return " ".join(parts)


def _notes(compared: AcrossDatasets) -> Iterator[str]:
    """Yield the tests, the scales of the shares, and the layers and data sets that do not count."""
    together = compared.together
    test = together.friedman
    if test is not None:
        yield (
            f"Friedman's test, statistic {test.statistic:.1f}: {_friedman_text(together, test, compared.controls)}; p "
            "by permutation of the ranks within each data set"
        )
    if together.pairs is not None:
        yield (
            f"Wilcoxon's signed-rank test of the shares for each of {together.comparisons} pairs, p after Holm's "
            f"correction: {'; '.join(_apart(together)) or f'none below {SIGNIFICANCE:g}'}. {_smallest_text(together)}"
        )
    else:
        yield (
            "pairs of layers are not tested: signed ranks need differences of one scale, the shares of the distance of "
            f"controls, on {LEAST_DATASETS} data sets or more"
        )
    if compared.distances:
        scales = []
        for column in compared.columns:
            if column.label in compared.distances:
                means = {row: column.ranking.means[row] for row in compared.controls if row in column.ranking.rows}
                best, worst = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
                difference = column.ranking.difference(worst, best)
                doubt = "" if difference is not None and difference.separated else ", not shown to differ"
                scales.append(f"{column.label} {compared.distances[column.label]:.3f} ({worst} - {best}{doubt})")
        yield f"distance of the controls: {'; '.join(scales)}"
    yield from compared.remarks


def _apart(standings: Standings) -> list[str]:
    return [f"{better} before {other} ({p_text(p)})" for better, other, p in standings.apart()]


def _smallest_text(standings: Standings) -> str:
    """Return the smallest p that a pair could have had."""
    datasets = len(standings.effects)
    least = smallest_p(datasets)
    corrected = min(1.0, least * standings.comparisons)
    after = f"{corrected:.2g} after Holm's correction for {standings.comparisons} pairs" if corrected < 1 else ""
    text = f"{datasets} data sets cannot give a p below {least:.2g} in a signed-rank test"
    if standings.decidable:
        return f"{text}, {after}"
    after = f", {after}" if after else f" before Holm's correction for {standings.comparisons} pairs"
    return f"{text}{after}, so that no pair could differ significantly, whatever was measured"


def across_findings(compared: AcrossDatasets) -> list[Finding]:
    """Return the findings over all data sets and, where there are several, over each family."""
    together = compared.together
    made = [_finding(f"all {len(together.means)} data sets", together, compared.controls, len(together.means.columns))]
    if len(compared.families) > 1:
        for family, part in compared.families.items():
            number = len(part.means)
            subject = f"{family} ({number} data set{'s' * (number > 1)})"
            made.append(_finding(subject, part, compared.controls, SHOWN))
    return made


def _finding(subject: str, standings: Standings, controls: Sequence[str], shown: int) -> Finding:
    ranks = standings.average_ranks
    order = ", ".join(f"{layer} {rank:.1f}" for layer, rank in ranks.head(shown).items())
    text = f"{'Average' if shown >= len(ranks) else 'Lowest average'} ranks: {order}."
    test = standings.friedman
    if test is None:
        few, least = (
            ("data sets", LEAST_DATASETS) if len(standings.means) < LEAST_DATASETS else ("layers", LEAST_LAYERS)
        )
        return Finding(subject, "no test", "open", f"{text} There is no test below {least} {few}.")
    text += f" Friedman's test: {_friedman_text(standings, test, controls)}."
    if standings.pairs is not None:
        apart = _apart(standings)
        more = f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
        named = f"Pairs that differ: {'; '.join(apart[:SHOWN])}{more}" if apart else _smallest_text(standings)
        text += f" {named}."
    differ = (_without_controls(standings, controls) or test).p < SIGNIFICANCE  # a bad control is no finding
    return Finding(subject, "layers differ" if differ else "no difference shown", "good" if differ else "open", text)


def _friedman_text(standings: Standings, test: Friedman, controls: Sequence[str]) -> str:
    """Return p of the test of all layers and, where there are layers enough, of those that are no controls."""
    text = f"that all {standings.means.shape[1]} layers are equal has {p_text(test.p)}"
    alone = _without_controls(standings, controls)
    return text if alone is None else f"{text}, without the controls {p_text(alone.p)}"


def _without_controls(standings: Standings, controls: Sequence[str]) -> Friedman | None:
    present = set(controls) & set(standings.means)
    return standings.without(present).friedman if present else None


def across_frame(compared: AcrossDatasets) -> pd.DataFrame:
    """Return a row per data set and layer that counts: mean, rank, share, lead, and outcome against each control."""
    together = compared.together
    return pd.DataFrame(
        [
            {
                "dataset": column.label,
                "family": column.family,
                "suite": column.suite,
                "layer": layer,
                "unit": column.unit,
                "mean": together.means.at[column.label, layer],
                "rank": together.ranks.at[column.label, layer],
                "share": together.effects[layer].get(column.label),
                "not_behind": layer in column.ranking.leaders,
            }
            | {
                f"against {control}": compared.outcomes[control, layer].get(column.label)
                for control in compared.controls
            }
            for column in compared.columns
            for layer in compared.layers
        ]
    )
