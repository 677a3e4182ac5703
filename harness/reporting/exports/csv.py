"""The training curves of a run as one table, curves.csv: a row for each trial and step, a column for each curve."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd

from harness.core.files import write_atomically
from harness.core.records import verdict
from harness.reporting.frame import Results, csv_bytes

FILE = "curves.csv"
ABOUT = ("suite", "profile", "kind", "dataset", "layer", "seed", "candidate", "status", "id")
COUNTS = ("seed", "candidate", "step", "crossings")


def write(results: Results, folder: Path) -> Path:
    """Write `curves.csv`; `id` is that of results.csv, which has the settings and the unit of a trial."""
    rows: list[dict[str, Any]] = []
    for trial in results.plan.trials:
        record = results.records.get(trial.id)
        if record is None or not record.curves.get("step"):
            continue
        about = {"suite": trial.suite, "profile": trial.profile, "kind": trial.kind, **trial.fields}
        about |= {"status": verdict(record), "id": trial.id}
        rows += [about | dict(zip(record.curves, point, strict=True)) for point in zip_longest(*record.curves.values())]
    curves = dict.fromkeys(("step", "seconds", "train", "validation")) | dict.fromkeys(
        name for row in rows for name in row if name not in ABOUT
    )
    frame = pd.DataFrame(rows, columns=[*ABOUT, *curves])
    frame = frame.astype({name: "Int64" for name in COUNTS if name in frame})
    path = folder / FILE
    write_atomically(path, csv_bytes(frame))
    return path
