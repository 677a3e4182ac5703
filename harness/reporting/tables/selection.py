"""Chosen rows and columns of the tables of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.core.errors import UserError
from harness.reporting.tables.rendering import Table, with_columns


@dataclass(frozen=True)
class Selection:
    """Names of rows, and beginnings of the headings of columns up to a comma; none: all of them."""

    rows: Sequence[str] = ()
    columns: Sequence[str] = ()

    def of(self, tables: Sequence[Table]) -> list[Table]:
        """Return what is chosen of each table that has a chosen row and a chosen column.

        Raises:
            UserError: a name is that of no row or column, or no table has both.
        """
        if not (self.rows or self.columns):
            return list(tables)
        for option, names, offered in (
            ("--rows", self.rows, dict.fromkeys(row[0] for table in tables for row in table.rows)),
            ("--columns", self.columns, dict.fromkeys(name for table in tables for name in _columns(table).values())),
        ):
            if unknown := [name for name in names if name not in offered]:
                raise UserError(f"{option} {unknown[0]}: no table has it; there are {', '.join(offered)}")
        chosen = [table for table in map(self._of, tables) if table.rows and len(table.header) > 1]
        if not chosen:
            raise UserError("--rows, --columns: no table has one of these rows and one of these columns; name others")
        return chosen

    def refuse(self, form: str) -> None:
        """Raise a UserError if something is chosen: this form has no tables."""
        if self.rows or self.columns:
            raise UserError(f"--to {form}: --rows and --columns choose from tables; use --to latex or --to csv")

    def _of(self, table: Table) -> Table:
        rows = {number: row for number, row in enumerate(table.rows) if not self.rows or row[0] in self.rows}
        place = {number: new for new, number in enumerate(rows)}
        bold = frozenset((place[row], column) for row, column in table.bold if row in place)
        columns = [column for column, name in _columns(table).items() if not self.columns or name in self.columns]
        return with_columns(replace(table, rows=tuple(rows.values()), bold=bold), [0, *columns])


def _columns(table: Table) -> dict[int, str]:
    """Return the names of the columns but the first: of their group, or their heading up to a comma."""
    groups = [text for text, span in table.groups for _ in range(span)] or [""] * len(table.header)
    named = enumerate(zip(groups, table.header, strict=True))
    return {number: (group or heading).partition(",")[0] for number, (group, heading) in named if number}
