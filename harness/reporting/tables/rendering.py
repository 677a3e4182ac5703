"""A table of plain text, and its three forms: for a terminal, Markdown (GitHub) and LaTeX (booktabs)."""

from __future__ import annotations

import math
import re
import shutil
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from tabulate import tabulate

from harness.core.texts import formless, one_line, shortened

WHOLE = 10**6  # characters of a line where there is no terminal
LONG = 48  # characters of a cell that does not fit into a line
UNBROKEN = 32  # characters of a word from which on LaTeX may break it, after a point, colon or slash
COLUMN = 235  # points: a column of a paper in two
FLOATS = 30  # tables in a row; LaTeX holds 52 floats of a document that have no place yet, and stops at the next
SENTENCE = 240  # characters of a sentence of a caption, from which on it describes a protocol and not the table
FOOTNOTE = 120  # characters of a remark below a table: two lines of a column
MARK = re.compile(r"\[\d+\]|[^\w\s]+?(?=:? )")  # begins the remark that explains it
PAGE = 680  # points of a part on average; LaTeX scales it to the width of a page, 505, with letters of 6 points
LINES = 48  # lines of the parts of a table that one page holds
CHARACTER, GAP = 4.6, 8.0  # points: a character in LaTeX's \small, and the room between two columns of a table


@dataclass(frozen=True)
class Table:
    """A table of plain text; the forms escape it.

    Attributes:
        name: a short word, for references.
        caption: the content of the table and its protocol.
        header: one text per column. The first column is aligned left, as are `words`, the others right.
        rows: as many texts per row.
        notes: remarks below the table.
        groups: (text, number of columns) of headings above the header, in order; "" heads nothing. The header of a
            column below one begins with its text and a comma, which LaTeX does not repeat.
        bold: (row, column) of cells that stand out.
        words: columns of text, not of numbers.
        detail: whether the page shows it folded, below the others.
        on_card: whether the card of a layer has it although it is a detail.
    """

    name: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    groups: tuple[tuple[str, int], ...] = ()
    bold: frozenset[tuple[int, int]] = frozenset()
    words: frozenset[int] = frozenset()
    detail: bool = False
    on_card: bool = False

    @property
    def alignment(self) -> tuple[str, ...]:
        """The alignment of the columns, in tabulate's terms."""
        return tuple("left" if column in {0, *self.words} else "right" for column in range(len(self.header)))

    def is_long(self, column: int) -> bool:
        """Return whether the text of a column needs more than a line."""
        return column in self.words and max((len(row[column]) for row in self.rows), default=0) > LONG


def markdown(table: Table) -> str:
    """Return caption, table and notes, each a paragraph."""
    text = _tabulated(table, table.header, "pipe", escape_markdown, "**{}**")
    notes = "\n".join(f"- {escape_markdown(note)}" for note in table.notes)
    return "\n\n".join(part for part in (escape_markdown(table.caption), text, notes) if part)


def plain(table: Table) -> str:
    """Return the same for a terminal: nothing is escaped, and a star marks a cell that stands out.

    A table wider than the terminal is in parts, each with the first column; a file or a pipe gets it whole.
    """
    parts = _parts(table, _characters, terminal_width())
    texts = [_tabulated(part, part.header, "simple", one_line, "{} *") for part in parts]
    notes = [one_line(note) for note in table.notes] + (["* bold"] if table.bold else [])
    return "\n\n".join(part for part in (one_line(table.caption), *texts, "\n".join(notes)) if part)


def terminal_width() -> int:
    """Return the characters of a line of the terminal, or of $COLUMNS; `WHOLE` for a file or a pipe."""
    return shutil.get_terminal_size((WHOLE, 0)).columns


def latex_tables(tables: Sequence[Table]) -> str:
    """Return tables as LaTeX, with a new page before there are more than LaTeX can hold without a place."""
    groups: list[list[str]] = [[]]
    for written in map(latex, tables):
        if groups[-1] and sum(text.count(r"\end{table") for text in (*groups[-1], written)) > FLOATS:
            groups.append([])
        groups[-1].append(written)
    return "\n\n\\clearpage\n\n".join("\n\n".join(group) for group in groups)


def latex(table: Table) -> str:
    """Return the table for a document with the packages booktabs and graphicx.

    The environment is `table`, or `table*` for what is wider than the column of a paper in two. What is wider than its
    place is scaled to fit; what would then have letters of less than about 6 points is cut into parts, one below the
    other, each with the first column, on as many pages as they need. Remarks on the marks in its cells are below it.
    Long sentences of the caption, and remarks that are long or explain no mark, are a comment above it, for the text of
    the paper.
    """
    first, *others = re.split(r"(?<=\.)\s+", table.caption)
    caption = " ".join([first, *(sentence for sentence in others if len(sentence) <= SENTENCE)])
    cells = "\n".join([*table.header, *(cell for row in table.rows for cell in row)])
    marked = [shortened(note, FOOTNOTE) for note in table.notes if (mark := MARK.match(note)) and mark[0] in cells]
    rest = [text for text in (*others, *table.notes) if text not in marked and text not in caption]
    label = f"tab:{re.sub(r'[^a-z0-9-]+', '-', table.name.lower())}"
    parts = _parts(table, _points, PAGE)
    at_once = max(1, LINES // max(map(_lines, parts)))
    pages = [[*map(_tabular, parts[first : first + at_once])] for first in range(0, len(parts), at_once)]
    footnotes = r"\quad ".join(map(escape_latex, marked))
    about = f"% About {label}, for the text or an appendix:"
    environment = "table*" if len(parts) > 1 or _points(table) > COLUMN else "table"
    written = [about, *(f"%   {escape_latex(text)}" for text in rest)] if rest else []
    for number, page in enumerate(pages):
        last = number == len(pages) - 1
        written += [
            rf"\begin{{{environment}}}",
            r"\centering\small\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{escape_latex(caption)}}}" if number == 0 else r"\caption[]{(continued)}",
            *([] if number else [rf"\label{{{label}}}"]),
            r"\par\smallskip",
            "\n\\par\\medskip\n".join(page),
            *([rf"\par\smallskip{{\footnotesize\raggedright {footnotes}\par}}"] if footnotes and last else []),
            rf"\end{{{environment}}}",
        ]
        if not last:
            written.append(r"\addtocounter{table}{-1}")
    return "\n".join(written)


def _tabular(table: Table) -> str:
    """Return the cells as LaTeX, scaled to the width of the line if they are wider."""
    above, header = _grouped(table)
    text = _tabulated(table, header, "latex_raw", escape_latex, r"\textbf{{{}}}")
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        text = text.replace(r"\hline", rule, 1)
    text = text.replace(r"\toprule", "\n".join([r"\toprule", *above]), 1)
    columns = "".join("p{24em}" if table.is_long(n) else side[0] for n, side in enumerate(table.alignment))
    text = re.sub(r"\\begin{tabular}{[lr]+}", lambda _: rf"\begin{{tabular}}{{{columns}}}", text, count=1)
    return rf"\resizebox{{\ifdim\width>\linewidth\linewidth\else\width\fi}}{{!}}{{%{chr(10)}{text}}}"


def _parts(table: Table, width: Callable[[Table], float], most: float) -> list[Table]:
    """Return the table in parts of neighbouring columns of about at most this width; a group of columns is in one."""
    (_, kept), *spans = table.groups or [("", 1)] * len(table.header)
    ends = list(accumulate((span for _, span in spans), initial=kept))
    first = width(with_columns(table, range(kept)))
    number = max(1, math.ceil((width(table) - first) / max(most - first, 1)))
    size = max(1, math.ceil(len(spans) / number))
    edges = [*ends[:-1:size], ends[-1]] if spans else [kept, kept]
    return [with_columns(table, [*range(kept), *range(*edge)]) for edge in pairwise(edges)]


def with_columns(table: Table, columns: Sequence[int]) -> Table:
    """Return the table of these columns; a group of columns has those of its own that are left."""
    place = {column: number for number, column in enumerate(columns)}
    ends = accumulate(span for _, span in table.groups)
    groups = [
        (text, sum(end - span <= column < end for column in columns))
        for (text, span), end in zip(table.groups, ends, strict=True)
    ]
    return replace(
        table,
        header=tuple(table.header[column] for column in columns),
        rows=tuple(tuple(row[column] for column in columns) for row in table.rows),
        groups=tuple((text, span) for text, span in groups if span),
        bold=frozenset((row, place[column]) for row, column in table.bold if column in place),
        words=frozenset(place[column] for column in table.words if column in place),
    )


def _points(table: Table) -> float:
    """Return about how wide LaTeX sets the table, in points."""
    cells = [_grouped(table)[1], *table.rows]
    longest = [max(len(row[column]) for row in cells) for column in range(len(table.header))]
    widths = [LONG if table.is_long(column) else count for column, count in enumerate(longest)]
    return sum(CHARACTER * width + GAP for width in widths)


def _lines(table: Table) -> int:
    """Return about how many lines LaTeX sets, heading and rules included; long texts are folded."""
    long = [column for column in range(len(table.header)) if table.is_long(column)]
    return 3 + sum(max([1, *(math.ceil(len(row[column]) / LONG) for column in long)]) for row in table.rows)


def _characters(table: Table) -> float:
    """Return how wide a terminal shows the table, in characters, with the stars of bold cells."""
    cells = [table.header, *table.rows]
    return sum(4 + max(len(one_line(row[column])) for row in cells) for column in range(len(table.header)))


def _tabulated(table: Table, header: Sequence[str], form: str, escape: Callable[[str], str], bold: str) -> str:
    """Return header and cells, escaped, in a format of tabulate; `bold` is the form of a cell that stands out."""
    cells = [
        [
            bold.format(escape(cell)) if (number, column) in table.bold else escape(cell)
            for column, cell in enumerate(row)
        ]
        for number, row in enumerate(table.rows)
    ]
    names = [escape(cell) for cell in header]
    return tabulate(cells, names, tablefmt=form, colalign=table.alignment, disable_numparse=True)


def _grouped(table: Table) -> tuple[list[str], list[str]]:
    """Return lines of LaTeX above the header, and the header below them."""
    if not table.groups:
        return [], list(table.header)
    heads, rules, header, start = [], [], [], 0
    for text, span in table.groups:
        heads.append(rf"\multicolumn{{{span}}}{{c}}{{{escape_latex(text)}}}" if text else " & " * (span - 1))
        rules += [rf"\cmidrule(lr){{{start + 1}-{start + span}}}"] if text else []
        header += [cell.removeprefix(f"{text}, ") for cell in table.header[start : start + span]]
        start += span
    return [" & ".join(heads) + r" \\", "".join(rules)], header


_MARKDOWN = {
    "\\": r"\\",
    "|": r"\|",
    "*": r"\*",
    "`": r"\`",
    "$": r"\$",
    "~": r"\~",
    "[": r"\[",
    "<": "&lt;",
    "&": "&amp;",
}

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",  # after the end of a row, [ and * would belong to it
    "*": "{*}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "→": r"$\rightarrow$",
    "µ": r"$\mu$",
    "²": "$^2$",
    "³": "$^3$",
    "°": r"$^\circ$",
    "≤": r"$\leq$",
    "−": "$-$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "§": r"\S{}",
    "¶": r"\P{}",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "·": r"$\cdot$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "‘": "`",
    "’": "'",
    "\u00a0": "~",
    "\u2009": r"\,",
    "\u202f": r"\,",
    "\u3000": r"\quad{}",
    "\u00ad": r"\-{}",
    "\u200b": r"\hspace{0pt}",
    **{mark: f"\\{mark}" for mark in "&%#$_{}"},
}


_SET = frozenset("“”ßÆæØøŒœŁł")  # that pdflatex sets unchanged, beside accented letters
_OGONEK = "\u0328"  # which its fonts lack


def escape_markdown(text: str) -> str:
    """Return the text escaped so that GitHub shows it unchanged, in table cells too."""
    text = "".join(_MARKDOWN.get(mark, mark) for mark in one_line(text))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # within a word an underscore is just itself


def escape_latex(text: str) -> str:
    """Return the text escaped so that LaTeX sets it unchanged; a minus before a number is set as one.

    A sign that pdflatex's fonts may lack would end its run: it is set as its code point, and one that has no form of
    its own, such as the joint of two signs, is left out.
    """
    text = "".join(_LATEX.get(mark) or _settable(mark) for mark in one_line(text))
    text = re.sub(r"(?<![\w.$-])-(?=\d)", "$-$", text)
    return re.sub(
        rf"\S{{{UNBROKEN},}}", lambda word: re.sub(r"(?<=\w)[.:/](?=\w)", r"\g<0>\\allowbreak{}", word[0]), text
    )


def _settable(mark: str) -> str:
    base, *accents = list(unicodedata.normalize("NFD", mark))
    accented = ord(mark) < 0x180 and base.isascii() and len(accents) == 1 and _OGONEK not in accents
    if mark.isascii() or mark in _SET or accented:
        return mark
    if formless(mark):
        return ""
    return r"\ " if unicodedata.category(mark) == "Zs" else f"U+{ord(mark):04X}"
