"""What a cell of a table says: a time, a count, a failure with a numbered remark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.core.run_options import UNCHECKED
from harness.reporting.results import MISSING

Line = Mapping[str, Any]
"""A line of results, see `results.plan_lines`."""

EMPTY = "–"
REASON_LENGTH = 300

OPERATIONS = {
    "forward": "forward",
    "forward_backward": "forward + backward",
    "inverse": "inverse",
    "inverse_warm": "inverse, factorised",
}


class Notes:
    """Remarks below a table; the same remark keeps its number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        """Take a remark in and return its mark, " [1]"."""
        if text not in self.texts:
            self.texts.append(text)
        return f" [{self.texts.index(text) + 1}]"

    def numbered(self) -> tuple[str, ...]:
        """All remarks with their numbers."""
        return tuple(f"[{number}] {text}" for number, text in enumerate(self.texts, start=1))


def layer_cell(row: str, lines: Iterable[Line], notes: Notes) -> str:
    """Return the label of a row, with a remark where its layer was not checked."""
    if any(line["layer"] == row and line.get("check") == UNCHECKED for line in lines):
        return row + notes.mark("not checked by check-layer (--unchecked)")
    return row


def failed_status(line: Line) -> str:
    """Why a line has no value, in a word."""
    return line["status"] if line["status"] != "ok" else "no value"


def failed_reason(line: Line) -> str:
    """Why a line has no value, in a sentence."""
    return shortened(line.get("reason") or line.get("audit_reason") or "no reason given")


def shortened(text: str) -> str:
    """A reason of bearable length; the record has all of it."""
    return text if len(text) <= REASON_LENGTH else f"{text[:REASON_LENGTH].rstrip()}… (the record has the rest)"


def failed_cell(line: Line, notes: Notes) -> str:
    """The status in place of a value, with its reason as a remark."""
    if line["status"] == MISSING:
        return MISSING
    return failed_status(line) + notes.mark(f"{line['layer']}: {failed_reason(line)}")


def count_cell(line: Line | None, measure: str, notes: Notes) -> str:
    """A whole number with separators."""
    if line is None:
        return EMPTY
    if line["status"] == "ok" and line.get(measure) is not None:
        return f"{line[measure]:,}"
    return failed_cell(line, notes)


def time_cell(line: Line, notes: Notes) -> str:
    """ "1.23 (0.05)": median and interquartile range in milliseconds."""
    if line["status"] == "ok" and line.get("median_ms") is not None:
        return f"{milliseconds(line['median_ms'])} ({milliseconds(line['iqr_ms'])})"
    return failed_cell(line, notes)


def milliseconds(value: float) -> str:
    """Three significant digits, without an exponent."""
    for limit, form in ((100, ".0f"), (10, ".1f"), (1, ".2f")):
        if value >= limit:
            return format(value, form)
    return f"{value:.3f}"


def shape_text(shape: str) -> str:
    """ "3x32x32" as it is set in print: 3×32×32."""
    return shape.replace("x", "×")


def device_text(device: str, lines: Iterable[Line]) -> str:
    """ "cpu (name of the processor)", as the records say."""
    names = sorted({line["machine"] for line in lines if line.get("machine")})
    return f"{device} ({', '.join(names)})" if names else device


def threads_text(threads: int) -> str:
    """ "1 thread"."""
    return f"{threads} thread{'s' if threads > 1 else ''}"
