"""The results of a folder as one typed frame, from its records or, where those are gone, from its results.csv."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from harness.core.errors import UserError
from harness.core.kinds import KINDS
from harness.planning.plan import FILE, Plan
from harness.reporting.results import read_records, results

TABLE = "results.csv"


def load(folder: Path) -> pd.DataFrame:
    """See `harness.load_results`."""
    if (folder / FILE).exists() or not (folder / TABLE).exists():
        plan = Plan.load(folder)
        return results(read_records(folder / "records", [trial.id for trial in plan.trials]), plan)
    types = {name: dtype for kind in KINDS.values() for name, dtype in kind.columns.items()}
    try:
        return pd.read_csv(folder / TABLE, dtype=types, keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / TABLE}: not readable as results ({error}); run the suite again") from error
