"""`harness.report`, `merge`, `compare` and `replicate`: reports of runs, and of what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from harness.core.archive import archive_of, read_records
from harness.core.arguments import Place, Places, arguments_of, check, checked, rule, taking
from harness.core.errors import UserError
from harness.core.files import write_atomically
from harness.core.settings import Flag, Settings
from harness.execution.folder import writing
from harness.execution.progress import ReportProgress
from harness.interface.options import MERGED, Arguments, ReplicateArguments, RunArguments, Terms, texts
from harness.interface.plan import plan
from harness.interface.run import reported, run
from harness.planning.plan import Plan, stray_records
from harness.planning.suite import Source, read_suite
from harness.reporting.report import ReportedResults, report_class, write_report

if TYPE_CHECKING:
    from harness.reporting.compare.comparison import Comparison
    from harness.reporting.compare.replication import Replication

STEM = "replication"


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


class Compared(Settings):
    """Runs of one suite, by folder or archive."""

    suite: Places


@checked
def compare(
    first: Place,
    second: Place,
    *,
    threshold: Annotated[tuple[str, ...], rule(texts, str | Sequence[str])] = (),
    other_code: Flag = False,
) -> Comparison:
    """Compare a run with an earlier one, trial by trial; in a notebook, the comparison is shown as its tables.

    Args:
        first: the folder or the archive of the earlier run.
        second: that of the later run.
        threshold: the largest changes that count as none: "0.02" for likelihoods, "10%" for times and parameters.
        other_code: also compare trials whose source differs, and report the differences.

    Raises:
        UserError: a folder without a run, or suites of different kinds.
    """
    from harness.reporting.compare.comparison import Thresholds
    from harness.reporting.compare.comparison import compare as compared

    return compared(first, second, Thresholds.parse(threshold), other_code)


@taking(ReplicateArguments)
def replicate(suite: Source | Sequence[str | Path], **arguments: Any) -> Replication:
    """Run a suite under several draws of all that it draws, and count the verdicts that stay.

    Each draw is run in `out/<suite>-draws/draw-<number>`, in which the same call resumes; tables are written beside it.

    Args:
        suite: as of `harness.run`; or folders or archives of two and more runs of one suite, of which none runs.
        **arguments: see below.

    Raises:
        UserError: as of `harness.run`, the suite draws nothing, or no pair of layers is compared in all draws.
    """
    from harness.reporting.compare.replication import replication, replication_tables
    from harness.reporting.frame import csv_bytes
    from harness.reporting.tables.rendering import latex_tables, markdown

    options = check(ReplicateArguments, arguments)
    folder, runs = options.out, dict[str, ReportedResults]()
    if isinstance(suite, (list, tuple)):
        compared = {str(place): ReportedResults.read(place) for place in check(Compared, {"suite": suite}).suite}
    else:
        folder, compared = _run_draws(suite, options)
        runs = compared
    result = replication({name: results.comparisons() for name, results in compared.items()})
    result = replace(result, runs=runs, folder=folder)
    tables = replication_tables(result)
    content = {
        "md": "\n\n".join(map(markdown, tables)).encode() + b"\n",
        "tex": latex_tables(tables).encode() + b"\n",
        "csv": csv_bytes(result.frame.reset_index()),
    }
    with writing(folder):
        for ending, data in content.items():
            write_atomically(folder / f"{STEM}.{ending}", data)
    return result


def _run_draws(source: Any, options: ReplicateArguments) -> tuple[Path, dict[str, ReportedResults]]:
    """Run each draw; return the folder of all and the results of each by name."""
    suite = read_suite(source)
    folder = options.out / f"{suite.suite}-draws"
    if any(text.replace(" ", "").startswith("draw=") for text in options.settings):
        raise UserError("--set draw: each draw of a replication has its own; leave it out")
    planned = plan(source, **arguments_of(Arguments, options)).plan
    if (fault := report_class(suite.kind).verdict_fault(planned)) is not None:
        raise UserError(f"{suite.suite}: has no verdict that could replicate: {fault}")
    runs = {}
    for number in range(options.draws):
        name = f"draw-{number}"
        if not options.quiet:
            print(f"{suite.suite}, {name}, in {folder / name / suite.suite}", flush=True)
        changes = {"settings": (*options.settings, f"draw={number}"), "out": folder / name}
        runs[name] = run(source, **arguments_of(RunArguments, options) | changes)
    return folder, runs
