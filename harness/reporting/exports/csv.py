"""The numbers of a report: the training curves as curves.csv, and in csv/ a file for each table."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd

from harness.core.files import distinct_slugs, write_atomically
from harness.core.records import verdict
from harness.reporting.frame import csv_bytes
from harness.reporting.report import ReportedResults
from harness.reporting.tables.selection import Selection
from harness.reporting.written import write_files

FILE, FOLDER = "curves.csv", "csv"
TRIAL = ("suite", "profile", "kind", "dataset", "layer", "seed", "candidate", "status", "id")
COUNTS = ("seed", "candidate", "step", "crossings")


def write(results: ReportedResults, folder: Path, selection: Selection) -> list[Path]:
    """Write `curves.csv` and `csv/`.

    A table has its cells as they are shown: results.csv and comparisons.csv have their numbers with all digits.
    """
    write_atomically(folder / FILE, csv_bytes(curves(results)))
    tables = selection.of(results.report.tables)
    names = distinct_slugs([table.name for table in tables])
    cells = {table.name: pd.DataFrame(list(table.rows), columns=list(table.header), dtype="string") for table in tables}
    content = {f"{FOLDER}/table-{names[name]}.csv": csv_bytes(frame) for name, frame in cells.items()}
    write_files(folder, content, (f"{FOLDER}/*.csv",))
    return [folder / FILE, folder / FOLDER]


def curves(results: ReportedResults) -> pd.DataFrame:
    """Return a row for each trial and step, a column for each curve; `id` is that of results.csv."""
    rows: list[dict[str, Any]] = []
    for trial in results.plan.trials:
        record = results.records.get(trial.id)
        if record is None or not record.curves.get("step"):
            continue
        about = {"suite": trial.suite, "profile": trial.profile, "kind": trial.kind, **trial.fields}
        about |= {"status": verdict(record), "id": trial.id}
        rows += [about | dict(zip(record.curves, point, strict=True)) for point in zip_longest(*record.curves.values())]
    names = dict.fromkeys(("step", "seconds", "train", "validation")) | dict.fromkeys(
        name for row in rows for name in row if name not in TRIAL
    )
    frame = pd.DataFrame(rows, columns=[*TRIAL, *names])
    return frame.astype({name: "Int64" for name in COUNTS if name in frame})
