"""Write a suite's report from its plan and its records, and from nothing else: same records, same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from harness.core.archive import FILE as ARCHIVE
from harness.core.archive import archive_bytes
from harness.core.discovery import sibling
from harness.core.errors import UserError
from harness.core.files import RECORD, checked_name, read_file
from harness.core.settings import Progress, silent
from harness.core.texts import one_line
from harness.planning.plan import FILE as PLAN
from harness.planning.plan import Plan
from harness.planning.suite_model import SUITES
from harness.reporting.compare.measure import Measure
from harness.reporting.figures.figure_style import render
from harness.reporting.figures.figures import Form, ReportFigure, drawn, image_files
from harness.reporting.frame import TABLE, Results, csv_bytes
from harness.reporting.page.answer import Answer
from harness.reporting.page.page import FILES, PageSection, page
from harness.reporting.tables.rendering import Table, escape_markdown, latex, latex_tables, markdown, plain
from harness.reporting.written import write_files

READ, TABLES, PAGE = 0.15, 0.4, 0.9  # of the work: done when records are read, tables made, and figures drawn
FIGURES = ("figures/*.png", "figures/*.svg")  # of the files of a report
NEEDS = "% Needs \\usepackage{booktabs,graphicx}.\n"


REPORTS: dict[str, type[Report]] = {}
"""Name of a kind of suite -> the class of its reports, once it is imported (see `report_class`)."""


def report_class(kind: str) -> type[Report]:
    """Return the class of the reports of a kind."""
    sibling(SUITES[kind], "report")  # registers it
    return REPORTS[kind]


@dataclass(frozen=True)
class Overview:
    """The results of several suites of one kind across their data sets; `frame` has their numbers."""

    answer: Answer
    tables: list[Table]
    figures: list[ReportFigure]
    frame: pd.DataFrame


class Report:
    """The report of a suite: its tables, then its figures by heading.

    Subclass with ``class RuntimeReport(Report, kind="runtime")`` in the kind's report.py to register it.

    Attributes:
        further_data: name -> description, for the page, of each file that `data_files` may return.
        measure: the comparison of two results of the kind.
        progress: receives the share of the figures that are drawn.
    """

    further_data: ClassVar[Mapping[str, str]] = {}
    measure: ClassVar[Measure] = Measure()

    def __init__(self, results: ReportedResults) -> None:
        self.results = results
        self.progress: Progress = silent

    def __init_subclass__(cls, *, kind: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        REPORTS[kind] = cls

    @cached_property
    def tables(self) -> list[Table]:
        """The tables, in order."""
        return []

    @cached_property
    def figures(self) -> list[ReportFigure]:
        """The figures, in order, as the report shows them."""
        return self.figures_as(render)

    def figures_as(self, form: Form) -> list[ReportFigure]:
        """Return the figures, in order, with files of another form."""
        return drawn([self.results], form=form, progress=self.progress)[0]

    @cached_property
    def answer(self) -> Answer | None:
        """The answer to the question of the suite; None where its kind has none, or nothing has run."""
        return None

    def comparisons(self, margin: float | None = None) -> pd.DataFrame | None:
        """Return the comparisons of all pairs of layers (see `harness.comparisons`); None where the kind has none."""
        return None

    @classmethod
    def verdict_fault(cls, plan: Plan) -> str | None:
        """Return why no two layers of a plan can be shown to differ, whatever its results; None if they can be."""
        return f"a suite of kind {plan.kind} draws nothing; replicate one of kind density"

    def data_files(self) -> Mapping[str, bytes]:
        """Return further files of data beside results.csv, by name; the page offers them for download."""
        return {}

    @classmethod
    def overview(cls, runs: tuple[Results, ...]) -> Overview | None:
        """Return the results of several suites of this kind across their data sets; None where there are too few."""
        return None

    def table_at(self, terms: str) -> Table:
        """Return the table that `report --at` adds; raise UserError if results of this kind have no such table."""
        raise UserError(
            f"--at {terms}: only likelihoods are compared on equal terms, and suites of kind {self.results.plan.kind} "
            "have none"
        )

    def markdown(self) -> str:
        """Return the content of table.md."""
        title, question = map(escape_markdown, self.results.plan.titled)
        head, warnings = [f"# {title}", question], [f"{one_line(text)}." for text in self.results.warnings]
        return f"{_joined([*head, *self.markdown_paragraphs(), *map(escape_markdown, warnings)])}\n"

    def plain(self, beside: Iterable[Table] = ()) -> str:
        """Return the same for a terminal, and further tables."""
        head, warnings = self.results.plan.titled, [f"{one_line(text)}." for text in self.results.warnings]
        return f"{_joined([*head, *self.plain_paragraphs(), *warnings, *map(plain, beside)])}\n"

    def markdown_paragraphs(self) -> list[str]:
        """Return the paragraphs of table.md below the question."""
        answer = "" if self.answer is None else self.answer.markdown()
        return [answer, *map(markdown, self.tables), self.results.suite_line, self.results.status_line]

    def plain_paragraphs(self) -> list[str]:
        """Return the same paragraphs for a terminal."""
        answer = "" if self.answer is None else self.answer.plain()
        return [answer, *map(plain, self.tables), self.results.suite_line, self.results.status_line]

    def sections(self, figures: Sequence[ReportFigure], beside: Sequence[Table]) -> list[PageSection]:
        """Return the sections of the page; the command asked for the tables `beside`.

        What leads stands above the tables; details of the tables and the other figures are folded.
        """
        groups: dict[str, list[ReportFigure]] = {}
        for figure in figures:
            groups.setdefault(figure.heading, []).append(figure)
        drawings = [PageSection(heading, figures=tuple(group)) for heading, group in groups.items()]
        leading = [section for section in drawings if any(figure.leading for figure in section.figures)]
        others = [section for section in drawings if section not in leading]
        shown = PageSection("Tables", tables=(*(table for table in self.tables if not table.detail), *beside))
        details = PageSection("Further tables", tables=tuple(table for table in self.tables if table.detail))
        folded = [replace(section, folded=True) for section in (details, *others) if section.tables or section.figures]
        return [*leading, shown, *folded]


class ReportedResults(Results):
    """Results with their report; in a notebook, shown as its tables."""

    @cached_property
    def report(self) -> Report:
        """The report: its tables, figures and answer."""
        return report_class(self.plan.kind)(self)

    def comparisons(self, margin: float | None = None) -> pd.DataFrame:
        """Return the differences of every two ranked layers (see `harness.comparisons`).

        Raises:
            UserError: they are not of a suite of likelihoods, or the margin is not positive.
        """
        if margin is not None and not 0 < margin < math.inf:
            raise UserError(
                f"margin {margin!r}: expected a positive number of nats or bits per dimension, such as 0.01"
            )
        frame = self.report.comparisons(margin)
        if frame is None:
            raise UserError(
                f"{self.folder} is of kind {self.plan.kind}, whose layers are not compared in pairs; give a run of a "
                "suite that compares likelihoods"
            )
        return frame

    def _repr_markdown_(self) -> str:
        """Return the content of table.md for a notebook, without its title as a heading."""
        title, _, rest = self.report.markdown().partition("\n")
        return f"**{title.removeprefix('# ')}**\n{rest}"


def write_report(
    folder: Path, at: Sequence[str] = (), archive: bool = False, progress: Progress = silent
) -> ReportedResults:
    """Write results.csv, further data of the kind, table.md, table.tex, figures/ and index.html; return the results.

    Each file is written whole or not at all.

    Args:
        at: terms on which results are to be equal, each for a further table, table-at-<terms>.
        archive: also write plan and records as one file (see `harness.core.archive`), to which alone the page links.
        progress: receives the share of the work that is done.

    Raises:
        UserError: there is no plan in the folder, the plan or a record cannot be read, or there is no table at `at`.
    """
    results = ReportedResults.read(folder)
    report = results.report
    report.progress = lambda fraction, text: progress(TABLES + (PAGE - TABLES) * fraction, text)
    progress(READ, "tables")
    beside = {f"at-{terms}": report.table_at(terms) for terms in dict.fromkeys(at)}
    further = {checked_name(name): data for name, data in report.data_files().items()}
    content = {
        TABLE: csv_bytes(results.table),
        **further,
        "table.md": report.markdown().encode(),
        "table.tex": f"{NEEDS}% {report.results.suite_line}\n{latex_tables(report.tables)}\n".encode(),
    }
    figures = report.figures
    content |= {f"figures/{checked_name(name)}": image for name, image in image_files(figures).items()}
    for name, table in beside.items():
        content[f"table-{name}.md"] = f"{_joined([markdown(table), results.suite_line])}\n".encode()
        content[f"table-{name}.tex"] = f"{NEEDS}% {results.suite_line}\n{latex(table)}\n".encode()
    progress(PAGE, "page")
    if archive:
        content[ARCHIVE] = archive_bytes(read_file(folder / PLAN, RECORD), results.records.values())
    linked = [ARCHIVE] if archive else [TABLE, *further]
    about = {name: text for name, text in (FILES | dict(report.further_data)).items() if name in linked}
    content["index.html"] = page(results, report.sections(figures, [*beside.values()]), about, report.answer, figures)
    write_files(folder, content, (*FIGURES, "table-at-*", *report.further_data))
    return results


def _joined(paragraphs: Sequence[str]) -> str:
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
