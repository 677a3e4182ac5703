"""Write a suite's report from its plan and its records, and from nothing else: same records, same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.kinds import kind_of
from harness.core.records import write_atomically
from harness.reporting.benchmarks import benchmark_figure, benchmark_table, read_benchmarks
from harness.reporting.compare.merge import CONFLICT
from harness.reporting.figures.figure_style import style
from harness.reporting.figures.figures import ReportFigure, rendered
from harness.reporting.frame import TABLE, Results, csv_bytes
from harness.reporting.page.page import page
from harness.reporting.page.page_sections import page_figures
from harness.reporting.suite_report import suite_report
from harness.reporting.tables.rendering import Table, latex, markdown, one_line

NEEDS = "% Needs \\usepackage{booktabs,graphicx}.\n"


@dataclass(frozen=True)
class WrittenReport:
    """The files of a report.

    Attributes:
        folder: the suite's folder.
        files: relative names of the files, in the order of writing.
        table: the text of table.md, then that of the tables that the command asked for.
        counts: number of trials by status; "missing" are those not yet run.
    """

    folder: Path
    files: tuple[str, ...]
    table: str
    counts: dict[str, int]


def write_report(folder: Path, at: Sequence[str] = (), benchmarks: Sequence[Path] = ()) -> WrittenReport:
    """Write results.csv, table.md, table.tex, figures/ and index.html of one suite; each file whole or not at all.

    Args:
        folder: OUT/<suite>, with plan.json and records/.
        at: terms on which results are to be equal, each for a table of its own, table-at-<terms>.
        benchmarks: files of pytest-benchmark, for a table and a figure of their own.

    Raises:
        UserError: there is no plan in the folder, the plan or a record cannot be read, or there is no table at `at`.
    """
    results = Results.read(folder)
    plan, report = results.plan, suite_report(results)
    beside = {f"at-{terms}": kind_of(plan.kind).table_at(results, terms) for terms in dict.fromkeys(at)}
    figures = [*report.figures]
    if benchmarks:
        table, figure = _benchmarks(benchmarks)
        beside["benchmarks"] = table
        figures += figure
    images = rendered(figures)
    conflicts = {name: record.notes[CONFLICT] for name, record in results.records.items() if CONFLICT in record.notes}
    parts = [f"# {one_line(plan.title)}", one_line(plan.question), *report.paragraphs()]
    parts += [f"Conflict: {name}: {text}." for name, text in conflicts.items()]
    text = "\n\n".join(part for part in parts if part) + "\n"
    content = {
        TABLE: csv_bytes(results.table),
        "table.md": text.encode(),
        "table.tex": (NEEDS + "\n\n".join(map(latex, report.tables)) + "\n").encode(),
    }
    content |= {f"figures/{name}": image for name, image in images.items()}
    for name, table in beside.items():
        content[f"table-{name}.md"] = f"{markdown(table)}\n".encode()
        content[f"table-{name}.tex"] = f"{NEEDS}{latex(table)}\n".encode()
        text += f"\n{markdown(table)}\n"
    sections = report.sections(page_figures(figures, images), list(beside.values()))
    content["index.html"] = page(results, sections)
    for name, data in content.items():
        write_atomically(folder / name, data)
    for stale in (*(folder / "figures").glob("*"), *folder.glob("table-*")):
        if stale.suffix in (".png", ".svg", ".md", ".tex") and str(stale.relative_to(folder)) not in content:
            stale.unlink()
    return WrittenReport(folder, tuple(content), text, dict(Counter(results.statuses.values())))


def _benchmarks(paths: Sequence[Path]) -> tuple[Table, list[ReportFigure]]:
    files = [read_benchmarks(path) for path in paths]
    with style():
        figure = benchmark_figure(files)
    return benchmark_table(files), [] if figure is None else [ReportFigure("benchmarks", "Benchmarks", figure)]
