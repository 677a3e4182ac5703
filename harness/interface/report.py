"""`harness.report` and `harness.merge`: write the report of a run again, or one report of several runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from harness.core.archive import StoredRecords, archive_of, read_records
from harness.core.arguments import Place, Places, checked, rule
from harness.core.errors import UserError
from harness.core.settings import Flag, Progress
from harness.execution.folder import writing
from harness.execution.progress import ReportProgress
from harness.interface.options import MERGED, Terms, texts
from harness.planning.plan import Plan, stray_records
from harness.reporting.report import ReportedResults, write_report


@checked
def report(
    folder: Place, *, at: Annotated[tuple[Terms, ...], rule(texts, str | Sequence[str])] = (), archive: Flag = False
) -> ReportedResults:
    """Write the report of a run again from its records, and return the results.

    Args:
        folder: OUT/<suite>, in which a suite was run.
        at: measures for further tables of the likelihoods at equal values: "steps", "seconds", "parameters" or "width".
        archive: also write records.zip, which holds the plan and the records in one file.

    Raises:
        UserError: there is no run, its plan or a record cannot be read, or it is an archive (see `merge`).
    """
    if archive_of(folder) is not None:
        raise UserError(f"{folder}: an archive, beside which no report is written; use harness.merge([...], out)")
    progress = ReportProgress(folder.name)
    progress(0.0, "plan")
    plan = Plan.load(folder)
    progress(0.05, f"{len(plan.trials):,} trials")
    return reported(plan, folder, read_records(folder, plan.trials, others=True), progress, print, at, archive)


def reported(
    plan: Plan,
    folder: Path,
    stored: StoredRecords,
    progress: Progress,
    tell: Callable[[str], object],
    at: Sequence[Terms] = (),
    archive: bool = False,
) -> ReportedResults:
    """Write the report of a run from its stored records, tell what it leaves out, and return the results."""
    results = ReportedResults.of(plan, stored.records.values(), folder, stored.damaged)
    with writing(folder):
        write_report(folder, at, archive, results, progress)
    for line in stray_records(plan, folder, stored):
        tell(line)
    return results


@checked
def merge(
    folders: Places,
    out: Place = MERGED,
    *,
    at: Annotated[tuple[Terms, ...], rule(texts, str | Sequence[str])] = (),
    archive: Flag = False,
) -> tuple[ReportedResults, ...]:
    """Join the records of several runs, and return the results of each suite; its report is in `out/<suite>`.

    Where two runs have a good record of one trial, the first one's is kept; records that contradict each other are
    printed, and are `conflicts` of the results. Times are of one machine, and those of others are left out and named.
    Several suites of one kind also have a report across their data sets, in `out/across`.

    Args:
        folders: of runs, OUT/<suite>, or archives of their records.
        out: the folder of the merged runs; a merge that is already there is replaced.
        at, archive: as of `report`.

    Raises:
        UserError: plans that do not belong into one table, or a target that holds a run.
    """
    from harness.reporting.compare.merge import merge as merge_records
    from harness.reporting.overview import FOLDER, write_overview

    for place in folders:
        for line in stray_records(Plan.load(place), place):
            print(line)
    progress = ReportProgress("merge")
    progress(0.0, f"records of {len(folders)} run{'s' * (len(folders) > 1)}")
    merged = merge_records(folders, out)
    print("\n".join(line for run in merged for line in run.lines()))
    runs = tuple(ReportedResults.of(run.plan, run.records, run.folder) for run in merged)
    for results in runs:
        with writing(results.folder):
            write_report(results.folder, at, archive, results, ReportProgress(results.folder.name))
    if len(runs) > 1:
        with writing(out / FOLDER):
            text = write_overview(out / FOLDER, runs)
        print("" if text is None else f"\n{text}\n\nin {out / FOLDER}")
    return runs
