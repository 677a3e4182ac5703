"""Abridge the caption and the remarks of a table to what a paper prints with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SENTENCE = 240  # characters of a sentence of a caption, from which on it describes a protocol and not the table
FOOTNOTE = 120  # characters: two lines of a column

_SUBJECT = re.compile(r"(\[\d+\]) (.+?): (.+)")  # "[1] emerging on digits: reason"
_MARK = re.compile(r"\[\d+\]|[^\w\s]+?(?=:? )")


@dataclass(frozen=True)
class Abridged:
    """Texts of a table in a paper.

    Attributes:
        caption: its first sentence, and the short ones.
        footnotes: the remarks on the marks in its cells, shortened.
        rest: in full, the sentences and the remarks that are not in these or not whole.
    """

    caption: str
    footnotes: tuple[str, ...]
    rest: tuple[str, ...]


def abridge(caption: str, notes: Sequence[str], cells: Iterable[str]) -> Abridged:
    """Return the texts of a table with these cells."""
    first, *others = re.split(r"(?<=\.)\s+", caption)
    kept = [first, *(sentence for sentence in others if len(sentence) <= SENTENCE)]
    text = "\n".join(cells)
    marked = [note for note in notes if (mark := _MARK.match(note)) and mark[0] in text]
    short = {note: _shortened(note) for note in marked}
    rest = [*(sentence for sentence in others if sentence not in kept), *(n for n in notes if short.get(n) != n)]
    return Abridged(" ".join(kept), tuple(_joined(list(short.values()))), tuple(rest))


def _shortened(note: str) -> str:
    """Return the clauses of a remark that fit into a footnote, or its first words."""
    if len(note) <= FOOTNOTE:
        return note
    parts = _SUBJECT.fullmatch(note)
    start = parts.start(3) if parts else 0  # a reason is never cut off whole
    for separator in ("; ", ", ", " (") if parts else ("; ", ": ", ", "):
        heads = [note[: cut.start()] for cut in re.finditer(re.escape(separator), note[: FOOTNOTE + 1])]
        whole = [head for head in heads if len(head) > start and head.count("(") == head.count(")")]
        if whole:
            return whole[-1]
    return f"{note[: FOOTNOTE - 1].rstrip()}…"


def _joined(footnotes: Sequence[str]) -> Iterable[str]:
    """Yield footnotes; one with the reason of an earlier one names that instead."""
    first: dict[str, str] = {}
    for footnote in footnotes:
        parts = _SUBJECT.fullmatch(footnote)
        if parts is None:
            yield footnote
        elif parts[3] in first:
            yield f"{parts[1]} {parts[2]}: as {first[parts[3]]}"
        else:
            first[parts[3]] = parts[1]
            yield footnote
