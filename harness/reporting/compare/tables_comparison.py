"""The tables of a comparison: a verdict for each layer and data set or timed case, and every single trial."""

from __future__ import annotations

import statistics
from collections import Counter

from harness.kinds.density.differences import difference_text
from harness.kinds.density.likelihoods import UNITS
from harness.reporting.compare.comparing import Comparison, Finding
from harness.reporting.compare.matching import Pair
from harness.reporting.frame import shortened
from harness.reporting.statistics.statistics import LEAST_SEEDS
from harness.reporting.tables.cells import EMPTY, Notes, milliseconds
from harness.reporting.tables.rendering import Table


def comparison_tables(found: Comparison, first: str, second: str) -> list[Table]:
    """The verdicts and, where a place has several trials, those.

    Args:
        found: of `comparing.compare`.
        first, second: what the runs are called in print.
    """
    notes = Notes()
    rows, trials = [], []
    for place, one in found.findings.items():
        mark = notes.mark("; ".join(shortened(reason) for reason in one.reasons)) if one.reasons else ""
        rows.append((*place, *_means(one), _change(one), one.verdict + mark))
        if len(one.pairs) > 1:
            trials += [(*place, *_trial(pair)) for pair in one.pairs]
    counts = Counter(one.verdict for one in found.findings.values())
    caption = (
        f"A: {first}. B: {second}. {', '.join(f'{count} {name}' for name, count in counts.items())}. Less is better. A "
        f"change counts beyond {found.thresholds.likelihood:g} nats or bits per dimension, of times and parameters "
        f"beyond {100 * found.thresholds.part:g} %. Likelihoods: mean difference B - A [95 % bootstrap interval] over "
        f"paired seeds; from {LEAST_SEEDS} seeds on it must pass a paired t test after Holm's correction for all rows "
        "here, below that its interval must lie on one side of zero. Times: medians, told apart where their spreads "
        "do not overlap."
    )
    remarks = (*notes.numbered(), *found.versions)
    made = [Table("comparison", caption, ("what", "layer", "A", "B", "change", "verdict"), tuple(rows), remarks)]
    if trials:
        made.append(Table("trials", "Trial by trial.", ("what", "layer", "trial", "A", "B", "change"), tuple(trials)))
    return made


def _means(one: Finding) -> tuple[str, str]:
    """Over the trials that are compared; of those that cannot be, over all that have a value."""
    pairs = [pair for pair in one.pairs if pair.change is not None] or one.pairs
    first, second = ([pair.values[side] for pair in pairs] for side in (0, 1))
    return _mean(pairs[0], first), _mean(pairs[0], second)


def _mean(pair: Pair, values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    middle = statistics.median if pair.kind == "runtime" else statistics.fmean
    return _value(pair, middle(known)) if known else EMPTY


def _value(pair: Pair, value: float | None) -> str:
    if value is None:
        return EMPTY
    if pair.kind == "runtime":
        return f"{milliseconds(value)} ms"
    return f"{value:.3f} {UNITS[pair.unit]}" if pair.kind == "density" else f"{value:,.0f}"


def _change(one: Finding) -> str:
    if one.change is None:
        return EMPTY
    if one.pairs[0].kind == "density":
        return difference_text(one.change)
    return f"{100 * one.change.estimate.mean:+.1f} %"


def _trial(pair: Pair) -> tuple[str, str, str, str]:
    first, second = (_value(pair, value) for value in pair.values)
    if pair.change is None:
        change = pair.fault[1] if pair.fault is not None else "not comparable"
    else:
        change = f"{pair.change:+.3f}" if pair.kind == "density" else f"{100 * pair.change:+.1f} %"
    return pair.member, first, second, shortened(change)
