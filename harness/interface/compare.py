"""`harness.compare` and `harness.replicate`: compare runs of one suite, or run it under several draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from harness.core.arguments import Place, Places, arguments_of, check, checked, rule, taking
from harness.core.errors import UserError
from harness.core.files import write_atomically
from harness.core.settings import Flag, Settings
from harness.execution.folder import writing
from harness.interface.options import Arguments, ReplicateArguments, RunArguments, texts
from harness.interface.plan import plan
from harness.interface.run import run
from harness.planning.suite import Source, read_suite
from harness.reporting.report import ReportedResults, report_class

if TYPE_CHECKING:
    from harness.reporting.compare.comparison import Comparison
    from harness.reporting.compare.replication import Replication

STEM = "replication"


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
