"""The texts of cells: a time, a count, a failure with a numbered remark; and remarks on the kernels behind times."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import pandas as pd

from harness.core.provenance.environment import NOT_ASKED
from harness.core.run_options import NOT_FULLY_CHECKED, UNCHECKED
from harness.reporting.frame import MISSING, Results, Row

EMPTY = "–"
FALLBACK = "¶"  # after a time of plain PyTorch whose layer may have a kernel, which was not loaded

OPERATIONS = {
    "forward": "forward",
    "forward_backward": "forward + backward",
    "log_det": "log-det",
    "inverse": "inverse",
    "inverse_warm": "inverse, factorised",
}


class Notes:
    """Remarks below a table; the same remark keeps its number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        """Add a remark and return its mark, " [1]"."""
        if text not in self.texts:
            self.texts.append(text)
        return f" [{self.texts.index(text) + 1}]"

    def numbered(self) -> tuple[str, ...]:
        """Return all remarks with their numbers."""
        return tuple(f"[{number}] {text}" for number, text in enumerate(self.texts, start=1))


def grid(rows: Sequence[str], columns: Sequence[Mapping[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Return a line for each row: its label, and its cell of each column, or a dash."""
    return tuple((row, *(cells.get(row, EMPTY) for cells in columns)) for row in rows)


def layer_cell(row: str, frame: pd.DataFrame, notes: Notes) -> str:
    """Return the label of a row, with a remark where its layer was not checked, or not by every rule."""
    checks = frame.loc[frame["layer"] == row, "check"].dropna().unique()
    if UNCHECKED in checks:
        return row + notes.mark("not checked by check-layer (--unchecked)")
    marks = [notes.mark(check) for check in checks if check.startswith(NOT_FULLY_CHECKED)]
    return row + "".join(marks)


def failed_cell(line: Row, notes: Notes) -> str:
    """Return the status in place of a value, with its reason as a remark."""
    return MISSING if line.status == MISSING else line.failure + notes.mark(f"{line.layer}: {line.cause}")


def count_cell(line: Row | None, measure: str, notes: Notes) -> str:
    """Return a whole number with separators."""
    if line is None:
        return EMPTY
    value = getattr(line, measure)
    return f"{value:,}" if line.status == "ok" and pd.notna(value) else failed_cell(line, notes)


def time_cell(line: Row, notes: Notes, lacking: Container[str]) -> str:
    """Return median and interquartile range in milliseconds, "1.23 (0.05)"; trials `lacking` kernels have a mark."""
    if line.status == "ok" and pd.notna(line.median_ms):
        mark = f" {FALLBACK}" if line.id in lacking else ""
        return f"{milliseconds(line.median_ms)} ({milliseconds(line.iqr_ms)}){mark}"
    return failed_cell(line, notes)


def milliseconds(value: float) -> str:
    """Return three significant digits, without an exponent."""
    for limit, form in ((100, ".0f"), (10, ".1f"), (1, ".2f")):
        if value >= limit:
            return format(value, form)
    return f"{value:.3f}"


def shape_text(shape: str) -> str:
    """Return "3x32x32" as 3×32×32."""
    return shape.replace("x", "×")


def device_text(device: str, frame: pd.DataFrame) -> str:
    """Return "cpu (name of the processor)", with the names in the records."""
    names = sorted(frame["machine"].dropna().unique())
    return f"{device} ({', '.join(names)})" if names else device


def threads_text(threads: int) -> str:
    """Return "1 thread"."""
    return f"{threads} thread{'s' if threads > 1 else ''}"


def fallbacks(results: Results) -> dict[str, str]:
    """Return trial id -> why the compiled kernels were not loaded, of the trials in which a layer asked for them."""
    reasons = {}
    for name, record in results.records.items():
        reason = record.environment.get("kernels", {}).get("reason")
        if record.environment.get("backend") == "torch" and reason not in (None, NOT_ASKED):
            reasons[name] = reason
    return reasons


def kernel_remarks(results: Results, timed: pd.DataFrame) -> tuple[str, ...]:
    """Return remarks below a table of these times: the layers with kernels, and the reason of a fallback."""
    measured = timed.dropna(subset=["median_ms", "backend"])
    reasons = fallbacks(results)
    remarks = []
    compiled = list(dict.fromkeys(measured.loc[measured["backend"] != "torch", "layer"]))
    if compiled:
        others = " the others are plain PyTorch" if (measured["backend"] == "torch").any() else ""
        remarks.append(f"compiled kernels: {', '.join(compiled)}{';' * bool(others)}{others}")
    elif len(measured):
        remarks.append("every layer ran as plain PyTorch")
    lacking = dict.fromkeys(reasons[name] for name in timed["id"] if name in reasons)
    return (*remarks, *(f"{FALLBACK} plain PyTorch, as there were no compiled kernels: {why}" for why in lacking))
