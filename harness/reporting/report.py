"""Write a suite's report from its plan and its records, and from nothing else: same records, same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UserError
from harness.core.records import write_atomically
from harness.kinds.claims.claims import examine, section_text, summary, summary_text
from harness.kinds.claims.page_claims import claims_sections
from harness.kinds.density.equal_terms import Terms, equal_terms_table
from harness.reporting.benchmarks import benchmark_figure, benchmark_table, read_benchmarks
from harness.reporting.compare.merge import CONFLICT
from harness.reporting.figures.figure_style import style
from harness.reporting.figures.figures import drawn, rendered
from harness.reporting.frame import TABLE, Results, csv_bytes
from harness.reporting.page.page import page
from harness.reporting.page.page_sections import suite_sections
from harness.reporting.tables.rendering import Table, latex, markdown, one_line

NEEDS = "% Needs \\usepackage{booktabs,graphicx}.\n"


@dataclass(frozen=True)
class Report:
    """The files of a report.

    Attributes:
        folder: the suite's folder.
        files: relative names of the files, in the order of writing.
        table: the text of table.md, and after it that of the tables asked for beside it.
        counts: number of trials by status; "missing" are those not yet run.
    """

    folder: Path
    files: tuple[str, ...]
    table: str
    counts: dict[str, int]


def write_report(folder: Path, at: Sequence[Terms] = (), benchmarks: Sequence[Path] = ()) -> Report:
    """Write results.csv, table.md, table.tex, figures/ and index.html of one suite; each file whole or not at all.

    Args:
        folder: OUT/<suite>, with plan.json and records/.
        benchmarks: files of pytest-benchmark, for a table and a figure of their own.
        at: terms on which the likelihoods are to be equal, each for a table of its own, table-at-<terms>.

    Raises:
        UserError: there is no plan in the folder, the plan or a record cannot be read, or there are no likelihoods.
    """
    results = Results.read(folder)
    plan = results.plan
    examined = examine(results)
    pictures = drawn(results)
    parts = [f"# {one_line(plan.title)}", one_line(plan.question)]
    if examined:
        made = [summary(examined), *(table for one in examined for table in one.tables)]
        parts += [summary_text(examined), results.status_line, *(section_text(one, pictures) for one in examined)]
    else:
        made = results.tables
        parts += [*map(markdown, made), results.status_line]
    conflicts = {name: record.notes[CONFLICT] for name, record in results.records.items() if CONFLICT in record.notes}
    parts += [f"Conflict: {name}: {text}." for name, text in conflicts.items()]
    text = "\n\n".join(part for part in parts if part) + "\n"
    tex = NEEDS + "\n\n".join(map(latex, made)) + "\n"
    content = {
        TABLE: csv_bytes(results.table),
        "table.md": text.encode(),
        "table.tex": tex.encode(),
    }
    more: dict[str, Table] = {}
    for terms in dict.fromkeys(at):
        if plan.kind != "density":
            raise UserError(f"--at {terms}: {folder} is of kind {plan.kind}, and only densities have equal terms")
        more[f"at-{terms}"] = equal_terms_table(results, terms)
    if benchmarks:
        files = [read_benchmarks(path) for path in benchmarks]
        more["benchmarks"] = benchmark_table(files)
        with style():
            figure = benchmark_figure(files)
        pictures |= {} if figure is None else {"benchmarks": figure}
    images = rendered(pictures)
    content |= {f"figures/{name}": image for name, image in images.items()}
    for name, table in more.items():
        content[f"table-{name}.md"] = f"{markdown(table)}\n".encode()
        content[f"table-{name}.tex"] = f"{NEEDS}{latex(table)}\n".encode()
        text += f"\n{markdown(table)}\n"
    if examined:
        sections = claims_sections(examined, images, list(more.values()))
    else:
        sections = suite_sections(results, [*made, *more.values()], images)
    content["index.html"] = page(results, sections)
    for name, data in content.items():
        write_atomically(folder / name, data)
    for stale in (*(folder / "figures").glob("*"), *folder.glob("table-*")):
        if stale.suffix in (".png", ".svg", ".md", ".tex") and str(stale.relative_to(folder)) not in content:
            stale.unlink()
    return Report(folder, tuple(content), text, dict(Counter(results.statuses.values())))
