"""A table of plain text, and its two forms: Markdown (GitHub) and LaTeX (booktabs)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tabulate import tabulate


@dataclass(frozen=True)
class Table:
    """A table of plain text; the forms escape it.

    Attributes:
        name: a short word, for references.
        caption: what the table shows and what it rests on.
        header: one text per column. The first column is aligned left, the others right.
        rows: as many texts per row.
        notes: remarks below the table.
    """

    name: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def alignment(self) -> tuple[str, ...]:
        """Of the columns, in tabulate's words."""
        return ("left",) + ("right",) * (len(self.header) - 1)


def markdown(table: Table) -> str:
    """Caption, table and notes, each a paragraph."""
    text = tabulate(
        [[escape_markdown(cell) for cell in row] for row in table.rows],
        [escape_markdown(cell) for cell in table.header],
        tablefmt="pipe",
        colalign=table.alignment,
        disable_numparse=True,
    )
    notes = "\n".join(f"- {escape_markdown(note)}" for note in table.notes)
    return "\n\n".join(part for part in (escape_markdown(table.caption), text, notes) if part)


def latex(table: Table) -> str:
    """A `table` environment that needs nothing but the package booktabs."""
    text = tabulate(
        [[escape_latex(cell) for cell in row] for row in table.rows],
        [escape_latex(cell) for cell in table.header],
        tablefmt="latex_raw",
        colalign=table.alignment,
        disable_numparse=True,
    )
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        text = text.replace(r"\hline", rule, 1)
    notes = [rf"\par\smallskip\footnotesize {escape_latex(note)}" for note in table.notes]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\small\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{escape_latex(table.caption)}}}",
            rf"\label{{tab:{re.sub(r'[^a-z0-9-]+', '-', table.name.lower())}}}",
            text,
            *notes,
            r"\end{table}",
        ]
    )


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
    "≈": r"$\approx$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "−": "$-$",
    "†": r"$\dagger$",
    "↓": r"$\downarrow$",
    "·": r"$\cdot$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "‘": "`",
    "’": "'",
    **{mark: f"\\{mark}" for mark in "&%#$_{}"},
}


def one_line(text: str) -> str:
    """Line breaks and other white space as single spaces, without control characters."""
    return " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())


def escape_markdown(text: str) -> str:
    """Text that GitHub shows as it is, in a table cell as elsewhere."""
    text = "".join(_MARKDOWN.get(mark, mark) for mark in one_line(text))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # within a word an underscore is just itself


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is; a minus before a number is set as one."""
    text = "".join(_LATEX.get(mark, mark) for mark in one_line(text))
    return re.sub(r"(?<![\w.$}-])-(?=\d)", "$-$", text)
