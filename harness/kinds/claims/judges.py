"""Judges of claims: about layers alone, and about trained flows.

A judge takes the results of the claim's suite, all of whose trials have run, and states numbers that are in them alone;
None if no trial has what it needs. A row named "X of LIBRARY" is compared with the row X, which applies the same kind
of matrix.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TypeVar

import pandas as pd

from harness.core.records import AUDIT_FAILED
from harness.kinds.claims.verdicts import (
    SUBJECT,
    Comparison,
    Holds,
    Outcome,
    Verdict,
    compared,
    counts_text,
    of_outcomes,
    outcome_of,
)
from harness.kinds.density.likelihoods import (
    UNITS,
    by_pair,
    comparable,
    density,
    explained,
    of_column,
    ranking,
    share_of,
    units,
)
from harness.kinds.density.tuning.searches import tuning_text
from harness.kinds.runtime.points import APART, clearly_faster, merged
from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.frame import Results, Row, groups_of, rows_of
from harness.reporting.statistics.statistics import Difference, judged
from harness.reporting.tables.cells import EMPTY, OPERATIONS, shape_text
from harness.reporting.tables.rendering import Table

FACTOR = 2  # "less than half"
ROUNDING = 1e-6  # nats; a larger error of a log-determinant in float64 is not rounding
PUBLISHED_BESIDE = ("emerging", "periodic")  # the layers that the publication compares with, in the claim's figure
SPEEDUPS = {"inverse": 1.17, "log_det": 4.31}  # claimed of CDFlow, over a dense matrix
SPEEDUP_CHANNELS = 96
OF = " of "  # before the name of a library
SMALL_GAP = 0.05  # nats or bits per dimension; what is claimed beyond the truth by less may be called the same
GRANTED = 3  # standard errors, below the floor

Cell = tuple[str, str]
Key = TypeVar("Key", bound=Hashable)


def parameters(results: Results) -> Verdict | None:
    """Judge "less than half of the parameters": at the published widths, and at equal ones."""
    counted = results.frame.dropna(subset="parameters").sort_values("parameters", kind="stable")
    groups = [("as published", counted.dropna(subset="published"))]
    groups += [(f"width {width}", same) for width, same in sorted(groups_of(counted, "width"))]
    comparisons: list[Comparison] = []
    for where, models in groups:
        lines = list(rows_of(models))
        subject = next((line for line in lines if line.layer == SUBJECT), None)
        other = next((line for line in lines if line.layer != SUBJECT), None)
        if subject is not None and other is not None:
            ratio = other.parameters / subject.parameters
            counts = (f"{subject.parameters:,}", f"{other.layer}, width {other.width}", f"{other.parameters:,}")
            comparisons.append(("for" if ratio > FACTOR else "against", (where, *counts, f"{ratio:.2f}")))
    if len(comparisons) < 2 or comparisons[0][1][0] != "as published":
        return None
    caption = f"Parameters of {SUBJECT}, and of the smallest other model."
    header = ("models", SUBJECT, "smallest other model", "its parameters", "times as many")
    return compared(results, caption, header, comparisons)


def mixing(results: Results) -> Verdict | None:
    """Judge "any permutation": it holds exactly where D is a power of two, and not where entries never meet."""
    exact = results.frame.dropna(subset="realised")
    alone = results.frame[(results.frame["mixer"] == "none") & results.frame["classes"].notna()]
    if alone.empty or exact.empty:
        return None
    sizes = [f"{line.realised} of {line.draws} at {shape_text(line.dataset)}" for line in rows_of(exact)]
    short = f"random permutations of 2^k entries reproduced by 2k - 1 factors: {', '.join(sizes)}"
    split = alone[alone["classes"] > 1]
    if len(split):
        short += f"; alone, it keeps classes of entries apart at {', '.join(map(shape_text, split['dataset']))}"
    holds: Holds = "holds in part" if len(split) else "holds"
    every = bool((exact["realised"] == exact["draws"]).all())
    return Verdict(holds if every else "does not hold", short, f"R{short[1:]}.")


def block_determinant(results: Results) -> Verdict | None:
    """Judge whether the LU factors of the blocks give the determinant: only where a block is one number."""
    blocks = results.frame[results.frame["blocks_error"].notna() & (results.frame["block_size"] > 1)]
    if blocks.empty:
        return None
    lines = rows_of(blocks.sort_values("block_size", kind="stable"))
    errors = [f"{line.blocks_error:.1g} nats at C = {line.block_size}" for line in lines]
    outcomes: list[Outcome] = ["for" if error <= ROUNDING else "against" for error in blocks["blocks_error"]]
    short = f"the LU factors of the blocks are off the determinant of one pair by {', '.join(errors)}"
    return Verdict(of_outcomes(outcomes), short, f"T{short[1:]}.")


def conformance(results: Results) -> Verdict | None:
    """Judge whether every layer is what it reports; name those that are not."""
    conforms = results.frame.dropna(subset="conforms").groupby("layer", sort=False)["conforms"].all()
    if conforms.empty:
        return None
    faulty = list(conforms[~conforms].index)
    short = f"{len(faulty)} of {len(conforms)} layers have a fault" + (f": {', '.join(faulty)}" if faulty else "")
    refused = [row for row in results.plan.rows if row not in conforms.index]
    text = f"{short}." + (f" Not built: {', '.join(refused)}." if refused else "")
    return Verdict(of_outcomes("for" if good else "against" for good in conforms), short, text)


def runtime(results: Results) -> Verdict | None:
    """Count the points at which the butterfly takes less time and memory than the layers of the publication.

    Times differ where their spreads do not meet: the interquartile range of the samples, or the gap between processes
    if that is wider. Where either time is marked as unstable, the spreads must lie a factor of two apart.
    """
    judged: dict[str, list[Outcome]] = {"time": [], "memory": []}
    for line, subject in _pairs(results, dict.fromkeys(PUBLISHED_BESIDE, SUBJECT).get):
        outcome: Outcome = "against" if clearly_faster(line, subject) else "open"
        judged["time"].append("for" if clearly_faster(subject, line) else outcome)
        judged["memory"] += filter(None, [_smaller(subject, line)])
    judged = {measure: outcomes for measure, outcomes in judged.items() if outcomes}
    if not judged:
        return None
    short = "; ".join(f"{measure}: {counts_text(outcomes)}" for measure, outcomes in judged.items())
    text = f"{SUBJECT} against {' and '.join(PUBLISHED_BESIDE)}: {short}."
    return Verdict(of_outcomes(outcome for of in judged.values() for outcome in of), short, text)


def speedups(results: Results) -> Verdict | None:
    """Judge "the inverse 1.17 and the log-determinant 4.31 times as fast as a dense matrix's, at 96 channels".

    A factor is reached, or missed, where the spreads of the two times and the margin of `runtime` allow nothing else.
    """
    comparisons: list[Comparison] = []
    pairs = list(_pairs(results, {"cdflow": "dense"}.get))
    for operation, claimed in SPEEDUPS.items():
        for subject, dense in pairs:
            if subject.operation != operation or not subject.shape.startswith(f"{SPEEDUP_CHANNELS}x"):
                continue
            margin = APART if subject.unstable or dense.unstable else 1
            ratio, least = dense.median_ms / subject.median_ms, max(dense.low, 0) / subject.high
            most = dense.high / subject.low if subject.low > 0 else math.inf  # a spread may be wider than the time
            outcome: Outcome = "against" if most * margin < claimed else "open"
            where = (OPERATIONS[subject.operation], shape_text(subject.shape), str(subject.batch))
            cells = (*where, f"{claimed:.2f}", f"{ratio:.2f} ({least:.2f} to {most:.2f})")
            comparisons.append(("for" if least >= claimed * margin else outcome, cells))
    caption = f"Time of the dense 1x1 convolution over that of CDFlow at {SPEEDUP_CHANNELS} channels."
    header = ("operation", "event", "batch", "claimed", "times as fast (by the spreads)")
    return compared(results, caption, header, comparisons, words=2)


def same_time(results: Results) -> Verdict | None:
    """Judge whether no layer here takes longer than the same one of a library, at every point and operation."""
    comparisons: list[Comparison] = []
    for line, ours in _pairs(results, lambda row: row.partition(OF)[0] if OF in row else None):
        ratio = line.median_ms / ours.median_ms
        outcome: Outcome = "for" if ratio >= 1 else "open" if ratio * APART > 1 else "against"
        cells = (line.layer, shape_text(line.shape), OPERATIONS[line.operation], str(line.batch), f"{ratio:.2f}")
        comparisons.append((outcome, cells))
    caption = "Time of each library's layer over that of the same kind of layer here, in the same process."
    header = ("layer", "event", "operation", "batch", "its time over ours")
    return compared(results, caption, header, comparisons, words=3)


def _pairs(results: Results, reference: Callable[[str], str | None]) -> Iterator[tuple[Row, Row]]:
    """Yield each case of a runtime suite with that of another layer, by name, at the same point."""
    threads = next(trial.threads for trial in results.plan.trials if isinstance(trial, RuntimeTrial))
    points = merged(results.of_kind("runtime"), threads).dropna(subset="median_ms")
    lines = {(line.layer, line.operation, line.sweep, line.shape, line.batch): line for line in rows_of(points)}
    for (layer, *where), line in lines.items():
        if (other := lines.get((reference(layer), *where))) is not None:
            yield line, other


def _smaller(subject: Row, other: Row) -> Outcome | None:
    """Compare by the allocator's count, which is the same at every call; None where nothing was counted."""
    if pd.isna(subject.peak_bytes) or pd.isna(other.peak_bytes):
        return None
    outside = pd.notna(subject.outside_bytes) or pd.notna(other.outside_bytes)  # the count leaves some memory out
    if outside or subject.peak_bytes == other.peak_bytes:
        return "open"
    return "for" if subject.peak_bytes < other.peak_bytes else "against"


def accounting(results: Results) -> Verdict | None:
    """Judge whether the released accounting gives a likelihood: none lies below the resolution floor."""
    frame = density(results)
    ended = frame[frame["status"] == "ok"]
    claimed = ended.dropna(subset="claimed")
    if claimed.empty:
        return None
    claimed = claimed.assign(error=claimed["standard_error"].fillna(0)).sort_values("claimed", kind="stable")
    unit = UNITS[claimed["unit"].iloc[0]]
    fair = ended[ended["claimed"].isna() & ended["value"].notna() & ended["doubt"].isna()]
    means = {row: f"{statistics.fmean(lines['value']):.2f}" for row, lines in groups_of(fair, "layer")}
    rows = tuple(
        (
            line.layer,
            f"{line.claimed:.2f}",
            f"{line.value:.2f} ± {line.standard_error:.2f}" if pd.notna(line.standard_error) else f"{line.value:.2f}",
            EMPTY if pd.isna(line.floor) else f"{line.floor:.2f}",
            means.get(line.layer, EMPTY),
        )
        for line in rows_of(claimed)
    )
    header = ("layer", "claimed", "true, same weights", "floor", "trained on the true one")
    caption = f"Negative log-likelihood on the test split, {unit}, after training on the released accounting."
    table = Table(f"{results.plan.suite}-claimed", caption, header, rows, explained(rows, claimed))
    lowest = claimed.iloc[0]
    layer, gap = lowest["layer"], lowest["value"] - lowest["claimed"]
    short = f"{layer} claims {lowest['claimed']:.2f}, has {lowest['value']:.2f} {unit}"
    text = (
        f"Trained on the released accounting, {short} with the same weights: the part of the 1x1 convolutions' "
        "log-determinants that is not counted."
    )
    below = claimed[claimed["claimed"] < claimed["floor"] - GRANTED * claimed["error"]]
    if len(below):
        short += f"; the floor is {below['floor'].iloc[0]:.2f}"
        text += (
            f" {len(below)} of {len(claimed)} claimed values and {claimed['below_floor'].sum()} true ones lie below "
            "the resolution floor, which no density of dequantised values can pass."
        )
    elif gap > SMALL_GAP:
        short += ", so the claimed value is no likelihood of these weights"
    else:
        return Verdict("undecided", f"{short}: too close to tell", f"{text} Nothing lies below the floor.", (table,))
    return Verdict("does not hold", short, text, (table,))


def singularity(results: Results) -> Verdict | None:
    """Judge whether training kept every matrix on its side of the singular ones; the first column is the usual rate."""
    crossed: dict[str, list[bool]] = {}
    for line in rows_of(results.of_kind("density")):
        curves = {} if line.id not in results.records else results.records[line.id].curves
        counts = [value for value in curves.get("crossings", []) if value is not None]
        if line.status in ("ok", "diverged") and counts:
            crossed.setdefault(line.dataset, []).append(counts[-1] > 0)
    if not crossed:
        return None
    parts = [f"{sum(crossings)} of {len(crossings)} at {column}" for column, crossings in crossed.items()]
    short = f"trainings in which a step crosses a singular matrix: {', '.join(parts)}"
    ordinary = crossed.get(results.plan.columns[0], [])
    every = any(any(crossings) for crossings in crossed.values())
    holds: Holds = "holds" if not every else "holds in part" if ordinary and not any(ordinary) else "does not hold"
    return Verdict(holds, short, f"T{short[1:]}." + " That none did is no proof." * (not every))


def ranked(results: Results, subject: str = SUBJECT) -> Verdict | None:
    """Judge in which columns the butterfly is significantly the best, or behind another row, over paired seeds."""
    parts, shorts, outcomes, frame = [], [], list[Outcome](), density(results)
    if not frame["tuned"].any():
        return Verdict("undecided", "nothing was tuned", tuning_text(results))
    for column in results.plan.columns:
        rank = ranking(results, column)
        means = rank.means
        if subject not in means or len(means) < 2:
            tuned = frame.loc[frame["dataset"] == column, "tuned"].any()
            parts.append(f"{column}: {'nothing to compare' if tuned else 'nothing was tuned'}")
            outcomes.append("open")
            continue
        lowest, second, *_ = rank.order
        behind = {row: rank.behind(row) for row in rank.order[1:]}
        if lowest == subject:
            close = [row for row, difference in behind.items() if outcome_of(difference) != "for"]
            other = (*close, second)[0]
            outcomes.append("open" if close else "for")
            shorts.append(f"not clearly ahead of {', '.join(close)} on {column}" if close else f"first on {column}")
        else:
            other, clear = subject, outcome_of(behind[subject]) == "for"
            outcomes.append("against" if clear else "open")
            shorts.append(f"{'' if clear else 'not clearly '}behind {lowest} on {column}")
        difference = behind[other]
        evidence = EMPTY if difference is None else difference.evidence()
        unit = UNITS[units(results)[column]]
        parts.append(f"{column}: {lowest} is lowest ({means[lowest]:.3f} {unit}), {other} {evidence}")
    if not shorts:
        return None
    return Verdict(of_outcomes(outcomes), f"{subject} is {', '.join(shorts)}", f"{'; '.join(parts)}.")


def ranked_cdflow(results: Results) -> Verdict | None:
    """Judge as `ranked`, of CDFlow."""
    return ranked(results, "cdflow")


def settings(results: Results) -> Verdict | None:
    """Judge whether the published setting, each layer's first row in the first column, beats single changes of it."""
    plan, (cells, values) = results.plan, _likelihoods(results)
    layers = {layer.row: layer.layer for trial in plan.trials if trial.steps for layer in trial.layers_under_test}
    published = {layer: row for row, layer in reversed(layers.items())}
    first = plan.columns[0]
    pairs = {
        (row, f"{published[layer]}, {column}"): ((row, column), (published[layer], column))
        for row, layer in layers.items()
        if row != published[layer]
        for column in plan.columns
    }
    pairs |= {
        (column, f"{first}, {row}"): ((row, column), (row, first)) for row in plan.rows for column in plan.columns[1:]
    }
    tested = _differences(cells, values, pairs)
    comparisons: list[Comparison] = []
    for name, (changed, before) in pairs.items():
        outcome, text = outcome_of(tested.get(name)), EMPTY
        if name in tested:
            text = tested[name].evidence()
        elif values[changed] or values[before]:
            outcome, without = ("for", changed) if values[before] else ("against", before)
            failures = cells[without]["failure"].mask(cells[without]["doubt"].notna(), AUDIT_FAILED)
            text = f"no value of {', '.join(without)} ({'/'.join(sorted(failures.unique()))})"
        comparisons.append((outcome, (*name, text)))
    if not tested and all(outcome == "open" for outcome, _ in comparisons):
        return None
    caption = "One thing changed of the published setting: difference of the likelihood from it over paired seeds."
    return compared(results, caption, ("changed to", "from", "difference"), comparisons, words=2)


def same_likelihood(results: Results) -> Verdict | None:
    """Judge whether each library's layer, "X of LIBRARY", reaches the likelihood of X here, over paired seeds."""
    names, (cells, values) = units(results), _likelihoods(results)
    pairs = {(row, column): ((row, column), (row.partition(" of ")[0], column)) for row, column in values}
    pairs = {key: (cell, ours) for key, (cell, ours) in pairs.items() if cell != ours and values.get(ours)}
    comparisons: list[Comparison] = [
        (
            "for" if outcome_of(difference) == "open" else "against",
            (row, column, UNITS[names[column]], difference.evidence()),
        )
        for (row, column), difference in _differences(cells, values, pairs).items()
    ]
    without = [f"{row} on {column}" for row, column in pairs if not values[row, column]]
    caption = (
        "Negative log-likelihood of each library's layer less that of the same kind of layer here, by paired seeds: "
        "against the claim if they differ significantly."
    )
    caption += f" Without a likelihood: {', '.join(without)}." if without else ""
    return compared(results, caption, ("layer", "on", "unit", "its value less ours"), comparisons, words=3)


def _likelihoods(results: Results) -> tuple[dict[Cell, pd.DataFrame], dict[Cell, dict[int, float]]]:
    """Return the frame by (row, column), and the likelihoods by seed, none of a cell where they may not be compared."""
    plan, frame = results.plan, density(results)
    cells = {(row, column): lines for column in plan.columns for row, lines in of_column(frame, plan, column).items()}
    return cells, {cell: by_pair(lines) if comparable(lines) else {} for cell, lines in cells.items()}


def _differences(
    cells: Mapping[Cell, pd.DataFrame],
    values: Mapping[Cell, Mapping[int, float]],
    pairs: Mapping[Key, tuple[Cell, Cell]],
) -> dict[Key, Difference]:
    """Return the difference of the first from the second of each pair over the seeds or repetitions that they share."""
    differences = {
        key: [value - values[reference][seed] for seed, value in values[cell].items() if seed in values[reference]]
        for key, (cell, reference) in pairs.items()
    }
    shares = {key: share_of(cells[cell]) for key, (cell, _) in pairs.items()}
    return judged({key: sample for key, sample in differences.items() if sample}, shares)


_ALL = (
    *(parameters, mixing, block_determinant, conformance, runtime, speedups, same_time),
    *(accounting, singularity, ranked, ranked_cdflow, settings, same_likelihood),
)
JUDGES: dict[str, Callable[[Results], Verdict | None]] = {judge.__name__: judge for judge in _ALL}
"""Name, as `judge` of a claim -> its test."""
