"""`harness.compare` and `harness.replicate`: compare runs of one suite, or run it under several draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError
from harness.core.files import write_atomically
from harness.execution.folder import writing
from harness.interface.options import only_texts, setting_texts
from harness.interface.plan import plan
from harness.interface.run import run
from harness.planning.suite import Source, read_suite
from harness.reporting.frame import Results, report_class

if TYPE_CHECKING:
    from harness.reporting.compare.comparison import Comparison
    from harness.reporting.compare.replication import Replication

STEM = "replication"


def compare(
    first: str | Path, second: str | Path, *, threshold: str | Sequence[str] = (), other_code: bool = False
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

    return compared(Path(first), Path(second), Thresholds.parse(only_texts(threshold)), other_code)


def replicate(suite: Source | Sequence[str | Path], *, draws: int = 5, **options: Any) -> Replication:
    """Run a suite under several draws of all that it draws, and count the verdicts that stay.

    Each draw is run in `out/<suite>-draws/draw-<number>`, in which the same call resumes; tables are written beside it.

    Args:
        suite: as of `harness.run`; or folders or archives of two and more runs of one suite, of which none runs.
        draws: the number of draws.
        options: arguments of `harness.run`.

    Raises:
        UserError: as of `harness.run`, the suite draws nothing, or no pair of layers is compared in all draws.
    """
    from harness.reporting.compare.replication import replication, replication_tables
    from harness.reporting.frame import csv_bytes
    from harness.reporting.tables.rendering import latex_tables, markdown

    folder, runs = Path(options.get("out", "reports")), dict[str, Results]()
    if isinstance(suite, Sequence) and not isinstance(suite, str):
        compared = {str(place): Results.read(Path(place)) for place in suite}
    else:
        folder, compared = _run_draws(suite, draws, folder, options)
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


def _run_draws(source: Source, draws: int, out: Path, options: dict[str, Any]) -> tuple[Path, dict[str, Results]]:
    """Run each draw; return the folder of all and the results of each by name."""
    if draws < 2:
        raise UserError(f"--draws {draws}: verdicts are compared between draws, so there are two or more")
    suite = read_suite(source)
    folder, settings = out / f"{suite.suite}-draws", setting_texts("settings", options.get("settings", ()))
    if any(text.replace(" ", "").startswith("draw=") for text in settings):
        raise UserError("--set draw: each draw of a replication has its own; leave it out")
    of_plan = {name: value for name, value in options.items() if name in signature(plan).parameters}
    if (fault := report_class(suite.kind).verdict_fault(plan(source, **of_plan).plan)) is not None:
        raise UserError(f"{suite.suite}: has no verdict that could replicate: {fault}")
    runs = {}
    for number in range(draws):
        name = f"draw-{number}"
        if not options.get("quiet"):
            print(f"{suite.suite}, {name}, in {folder / name / suite.suite}", flush=True)
        changes = {"settings": [*settings, f"draw={number}"], "out": folder / name}
        runs[name] = run(source, **options | changes)
    return folder, runs
