"""Judges of statements about the layers of other libraries: whether they are right, as fast and as good as ours.

A row named "X of LIBRARY" is compared with the row X, which applies the same kind of matrix.
"""

from __future__ import annotations

from harness.kinds.claims.verdicts import (
    FAILS,
    HOLDS,
    IN_PART,
    Outcome,
    Verdict,
    nothing_to_judge,
    of_outcomes,
    outcome_of,
)
from harness.kinds.conformance.tables import faults_of
from harness.kinds.density.likelihoods import UNITS, by_seed, comparable, density, of_column, units
from harness.kinds.runtime.points import APART, merged
from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.frame import Results, groups_of, rows_of
from harness.reporting.statistics.statistics import judged
from harness.reporting.tables.cells import OPERATIONS, shape_text
from harness.reporting.tables.rendering import Table

OF = " of "


def conformance(results: Results) -> Verdict:
    """Judge whether every layer is what it reports; name those that are and those that are not."""
    frame = results.frame.dropna(subset="conforms")
    if frame.empty:
        return nothing_to_judge(results)
    faulty = dict.fromkeys(fault[0] for fault in faults_of(results))
    sound = [row for row in dict.fromkeys(frame["layer"]) if row not in faulty]
    refused = [row for row in results.plan.rows if row not in {*faulty, *sound}]
    text = f"Without a fault: {', '.join(sound) or 'none'}. With a fault: {', '.join(faulty) or 'none'}."
    if refused:
        text += f" Not built: {', '.join(refused)}."
    short = f"{len(faulty)} of {len(faulty) + len(sound)} layers have a fault"
    return Verdict(IN_PART if faulty and sound else FAILS if faulty else HOLDS, short, text)


def same_time(results: Results) -> Verdict:
    """Judge whether no layer here takes longer than the same one of a library, at every point and operation."""
    threads = next(trial.threads for trial in results.plan.trials if isinstance(trial, RuntimeTrial))
    points = merged(results.of_kind("runtime"), threads).dropna(subset="median_ms")
    outcomes, rows = list[Outcome](), []
    for place, own in groups_of(points, ["shape", "batch", "operation"]):
        times = {line.layer: line for line in rows_of(own)}
        for row, line in times.items():
            reference = times.get(row.partition(OF)[0])
            if reference is None or reference is line:
                continue
            ratio = line.median_ms / reference.median_ms
            outcomes.append("for" if ratio >= 1 else "open" if ratio * APART > 1 else "against")
            shape, batch, operation = place
            rows.append((row, shape_text(shape), str(batch), OPERATIONS[operation], f"{ratio:.2f}"))
    if not rows:
        return nothing_to_judge(results)
    header = ("layer", "event", "batch", "operation", "its time over ours")
    caption = "Time of each library's layer over that of the same kind of layer here, in the same process."
    table = Table(f"{results.plan.suite}-ratios", caption, header, tuple(rows), words=frozenset({3}))
    lost = outcomes.count("against")
    short = f"ours takes longer in {len(rows) - outcomes.count('for')} of {len(rows)} comparisons"
    text = f"{short[0].upper()}{short[1:]}, in {lost} of them by a factor of {APART} or more."
    return Verdict(of_outcomes(outcomes), short, text, (table,))


def same_likelihood(results: Results) -> Verdict:
    """Judge whether each library's layer reaches the likelihood of the same kind of layer here, over paired seeds."""
    frame, names, differences = density(results), units(results), dict[tuple[str, str], list[float]]()
    without = []
    for column in results.plan.columns:
        cells = of_column(frame, results.plan, column)
        values = {row: by_seed(own) for row, own in cells.items() if comparable(own)}
        for row in cells:
            reference = row.partition(OF)[0]
            if row == reference or reference not in values:
                continue
            if row not in values:
                without.append(f"{row} on {column}")
                continue
            seeds = [seed for seed in values[row] if seed in values[reference]]
            differences[row, column] = [values[row][seed] - values[reference][seed] for seed in seeds]
    tested = judged({key: found for key, found in differences.items() if found})
    if not tested:
        return nothing_to_judge(results)
    differs = [key for key, found in tested.items() if outcome_of(found) != "open"]
    rows = tuple((row, column, UNITS[names[column]], found.evidence()) for (row, column), found in tested.items())
    header = ("layer", "on", "unit", "its value less ours")
    caption = (
        "Negative log-likelihood of each library's layer less that of the same kind of layer here, by paired seeds."
    )
    table = Table(f"{results.plan.suite}-differences", caption, header, rows, words=frozenset({1, 2, 3}))
    short = f"{len(differs)} of {len(tested)} differ significantly"
    text = f"Of {len(tested)} comparisons {len(differs)} show a significant difference."
    if without:
        text += f" Without a likelihood: {', '.join(without)}."
    return Verdict(HOLDS if not differs else IN_PART if len(differs) < len(tested) else FAILS, short, text, (table,))
