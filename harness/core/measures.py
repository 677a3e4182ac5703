"""Check the measures of a record against the schema of its kind: none is dropped, and none goes unnamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.core.kinds import kind_of


def check_measures(kind: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Raise ValueError if a row has a measure that is not among the columns of its kind of trial."""
    unknown = sorted({name for row in rows for name in row} - kind_of(kind).columns.keys())
    if unknown:
        raise ValueError(
            f"measure {', '.join(map(repr, unknown))} is not a column of results of kind {kind!r}; name it in "
            f"harness/kinds/{kind}/__init__.py, `columns`"
        )
