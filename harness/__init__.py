"""Suites -> plan -> trials -> records -> tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import harness.kinds  # noqa: F401  registers the kinds of trials

if TYPE_CHECKING:
    import pandas as pd


def load_results(folder: str | Path) -> pd.DataFrame:
    """Return the results of a run as a pandas frame: a line for every measure of every planned trial, in plan order.

    Columns and types are those of each kind (`harness.core.kinds.KINDS[kind].columns`), as in results.csv: text is
    "string", counts are "Int64", measures "Float64", flags "boolean", and what was not measured is <NA>. `status` is
    "ok", another status of a trial, or "missing" for one that has not run; likelihoods with `audit` "failed" are none
    to compare.

    Args:
        folder: OUT/<suite>, written by `run`, or an archive of its records. A folder with results.csv alone, such as a
            committed report, is read from that file.

    Raises:
        UserError: no suite was run in it, or its plan or a record cannot be read.
    """
    from harness.reporting.frame import load

    return load(Path(folder))


__all__ = ["load_results"]
