"""The command `compare A B`, from its arguments to its text and exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.core.errors import UserError
from harness.core.records import write_atomically
from harness.reporting.compare.comparison import Thresholds, compare
from harness.reporting.compare.table import comparison_tables
from harness.reporting.tables.rendering import markdown, plain


def compare_runs(
    first: Path, second: Path, thresholds: Sequence[str], other_code: bool, to: Path | None
) -> tuple[str, int]:
    """Return the text for a terminal, and the exit code: 1 if something became worse, 0 if nothing did.

    A comparison in which nothing could be compared ends with 2, so that it is not mistaken for a success.

    Args:
        first, second: folders of runs.
        thresholds: as on the command line, see `Thresholds.parse`.
        other_code: see `comparing.compare`.
        to: a file for the same as Markdown, or None.

    Raises:
        UserError: a folder, a record or a threshold that cannot be read, or a file that cannot be written.
    """
    found = compare(first, second, Thresholds.parse(thresholds), other_code)
    tables = comparison_tables(found, str(first), str(second))
    text = "\n\n".join(map(plain, tables))
    if not found.compared:
        text += "\n\nnothing could be compared; the remarks say why"
    if to is not None:
        try:
            write_atomically(to, ("\n\n".join(map(markdown, tables)) + "\n").encode())
        except OSError as error:
            raise UserError(f"--markdown {to}: cannot be written ({error.strerror})") from error
    return text, 2 if not found.compared else 1 if found.worse else 0
