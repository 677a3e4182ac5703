"""The tables of a comparison: a verdict for each place, and every single repetition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.reporting.compare.comparison import Comparison, PlaceComparison
from harness.reporting.compare.measure import Row
from harness.reporting.compare.pairs import Pair
from harness.reporting.frame import shortened
from harness.reporting.statistics.statistics import LEAST_SEEDS
from harness.reporting.tables.cells import EMPTY, Notes
from harness.reporting.tables.rendering import Table


def comparison_tables(found: Comparison, first: str, second: str) -> list[Table]:
    """Return the table of verdicts and, if any place has repetitions, a table of these.

    Args:
        found: the comparison.
        first, second: names of the runs.
    """
    notes = Notes()
    rows, trials = [], []
    for place, outcome in found.places.items():
        mark = notes.mark("; ".join(shortened(reason) for reason in outcome.reasons)) if outcome.reasons else ""
        rows.append((*place, *_joint(outcome.pairs), _change(outcome), outcome.verdict + mark))
        if len(outcome.pairs) > 1:
            trials += [(*place, pair.repeat, *_joint([pair]), _single_change(pair)) for pair in outcome.pairs]
    counts = Counter(outcome.verdict for outcome in found.places.values())
    caption = (
        f"A: {first}. B: {second}. {', '.join(f'{count} {name}' for name, count in counts.items())}. Less is better. A "
        f"change counts beyond {found.thresholds.likelihood:g} nats or bits per dimension, of times and parameters "
        f"beyond {100 * found.thresholds.part:g} %. Likelihoods: mean difference B - A [95 % bootstrap interval] over "
        f"paired seeds; from {LEAST_SEEDS} seeds on it must pass a paired t test after Holm's correction for all rows "
        "here, below that its interval must exclude zero. Times: medians, a change is significant where their spreads "
        "do not overlap."
    )
    remarks = (*notes.numbered(), *found.versions)
    made = [Table("comparison", caption, ("what", "layer", "A", "B", "change", "verdict"), tuple(rows), remarks)]
    if trials:
        made.append(Table("trials", "Trial by trial.", ("what", "layer", "trial", "A", "B", "change"), tuple(trials)))
    return made


def _joint(pairs: Sequence[Pair]) -> tuple[str, str]:
    """Return the joint values of A and B over the pairs that are compared or, without any, over all."""
    compared = [pair for pair in pairs if pair.change is not None] or pairs
    measure = pairs[0].measure
    texts = []
    for side in (0, 1):
        values = [value for pair in compared if (value := pair.values[side]) is not None]
        rows: list[Row] = [row for pair in compared if (row := (pair.first, pair.second)[side]) is not None]
        texts.append(measure.text(values, rows) if values else EMPTY)
    return texts[0], texts[1]


def _change(outcome: PlaceComparison) -> str:
    if outcome.change is None:
        return EMPTY
    if outcome.pairs[0].measure.relative:
        return f"{100 * outcome.change.estimate.mean:+.1f} %"
    return outcome.change.text()


def _single_change(pair: Pair) -> str:
    if pair.change is None:
        return shortened(pair.fault[1] if pair.fault is not None else "not comparable")
    return f"{100 * pair.change:+.1f} %" if pair.measure.relative else f"{pair.change:+.3f}"
