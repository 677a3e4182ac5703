"""The answer of a runtime suite: the fastest layers at the largest point of each sweep, with the spread of times."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from harness.kinds.runtime.points import APART, clearly_faster, merged
from harness.kinds.runtime.trial import RuntimeTrial
from harness.reporting.frame import Results, Row, groups_of, rows_of
from harness.reporting.page.answer import Answer, Finding, listed
from harness.reporting.tables.cells import OPERATIONS, kernel_remarks, milliseconds, shape_text

ASKED = (("forward_backward", "forward"), ("inverse",))
"""Operations that stand for a step of training and for a sample, each with the one taken where it was not timed."""


def answer(results: Results) -> Answer | None:
    """Return two findings per sweep, for training and for samples; None without times of two layers."""
    findings = tuple(_findings(results))
    if not findings:
        return None
    said = (
        f"Layers differ clearly where the spreads of their times do not meet and, where either is marked as unstable, "
        f"lie a factor of {APART} apart.",
    )
    ran = tuple(f"{text}." for text in kernel_remarks(results, results.of_kind("runtime")))
    left = ("Times of another machine, of other sizes, or of a whole flow.",)
    return Answer(findings, (("Compared", said), ("Rests on", ran), ("Not said", left)))


def _findings(results: Results) -> Iterator[Finding]:
    trials = {trial.sweep: trial for trial in results.plan.trials if isinstance(trial, RuntimeTrial)}
    for sweep, trial in trials.items():
        frame = results.frame[results.frame["sweep"] == sweep]
        points = merged(frame, trial.threads).dropna(subset="median_ms")
        for operations in ASKED:
            operation = next((name for name in operations if (points["operation"] == name).any()), None)
            if operation is None:
                continue
            times = points[points["operation"] == operation]
            counts = [(group["entries"].iloc[0], group) for _, group in groups_of(times, ["shape", "batch"])]
            _, largest = max(counts, key=lambda count: (len(count[1]) > 1, count[0]))
            if len(largest) > 1:
                yield _finding(sweep, operation, largest)


def _finding(sweep: str, operation: str, point: pd.DataFrame) -> Finding:
    first, *others = rows_of(point.sort_values("median_ms", kind="stable"))
    close = [line for line in others if not clearly_faster(first, line)]
    slower = [line for line in others if clearly_faster(first, line)]
    text = _time(first)
    if close:
        text += f"; no clear difference from {listed([_time(line) for line in close])}"
    if slower:
        text += f"; next {_time(slower[0])}"
    where = f"{sweep}: {OPERATIONS[operation]}, {shape_text(first.shape)}, batch {first.batch}"
    if close:
        return Finding(where, "no single fastest", "open", f"{text}.")
    return Finding(where, "clearly fastest", "good", f"{text}.")


def _time(line: Row) -> str:
    mark = " †" if line.unstable else ""
    spread = f"{milliseconds(max(line.low, 0))} to {milliseconds(line.high)}"
    return f"{line.layer} {milliseconds(line.median_ms)} ms ({spread}){mark}"
