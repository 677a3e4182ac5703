"""Tables as Markdown and LaTeX."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from toys import tables_of

from harness.reporting.tables import rendering
from harness.reporting.tables.rendering import (
    FLOATS,
    FOOTNOTE,
    Table,
    escape_latex,
    escape_markdown,
    latex,
    latex_tables,
    markdown,
    plain,
)

WIDTH = rendering.terminal_width  # that of every terminal, which tests replace
NASTY = r"a_b & 50% #1 $x$ {y} ~ ^ \z <script> | [c] *d* `e` ± × − † ‡ “q” éŁ 日ą→☃"


def test_special_characters_are_escaped_in_latex_and_markdown():
    text = escape_latex(NASTY)
    written = re.sub(r"\$\\?\w*-?\$|\\text\w+\{\}|\\ldots\{\}|\{[\[*]\}", "", text)
    for mark in "&%#_{}$":
        assert not re.search(rf"(?<!\\)\{mark}", written), mark
    assert r"a\_b \& 50\% \#1 \$x\$ \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z" in text
    assert r"\textless{}script\textgreater{}" in text
    assert escape_latex("[x] *") == "{[}x] {*}", "LaTeX reads these after the end of a row as options"
    assert escape_latex("-2.34 ± 0.01, 1e-3, a-3") == r"$-$2.34 $\pm$ 0.01, 1e-3, a-3"
    assert escape_latex("a.b:C") == "a.b:C"
    assert escape_latex("package.with_names.of.modules:AndItsClass").count(r"\allowbreak{}") == 4
    assert escape_latex("[-1.438, (-2)") == r"{[}$-$1.438, ($-$2)"
    table = Table("t", "caption", ("layer", NASTY), ((NASTY, "two\nlines"), ("-x", "1e5")), ("[1] <b>note</b>",))
    text = markdown(table)
    lines = text.splitlines()
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in lines if line.startswith("|"))
    assert "&lt;script>" in text and r"\*d\*" in text and "two lines" in text and "<b>" not in text
    assert "1e5" in text, "cells are text: no number is reformatted"
    assert escape_markdown("a_b _c_") == r"a_b \_c\_"


def test_latex_has_booktabs_rules_both_columns_for_a_wide_table_and_pages_between_many():
    text = latex(Table("My Table", "50% of_all", ("a", "b"), (("[x]", "1"), ("*", "2"))))
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\hline")] == [1, 1, 1, 0]
    assert text.index(r"\toprule") < text.index(r"\midrule") < text.index(r"\bottomrule")
    assert r"\caption{50\% of\_all}" in text and r"\label{tab:my-table}" in text
    narrow = latex(Table("t", "caption", ("layer", "bits/dim"), (("conv1x1", "2.391 [2.371, 2.403]"),)))
    assert narrow.startswith(r"\begin{table}") and narrow.endswith(r"\end{table}")
    wide = latex(Table("t", "caption", ("layer", *"abc"), (("conv1x1", *["2.391 [2.371, 2.403]"] * 3),)))
    assert wide.startswith(r"\begin{table*}") and wide.endswith(r"\end{table*}")
    table = Table("t", "caption", ("layer", "bits/dim"), (("conv1x1", "2.391"),))
    parts = latex_tables([table] * (2 * FLOATS + 1)).split("\n\n\\clearpage\n\n")
    assert [part.count(r"\begin{table}") for part in parts] == [FLOATS, FLOATS, 1]
    assert latex_tables([table]) == latex(table) and latex_tables([]) == ""


def test_a_paper_has_the_marks_of_a_table_below_it_and_the_protocol_in_a_comment():
    listed = "; ".join(f"layer {number} on digits (2 of 3)" for number in range(20))
    notes = (
        "[1] oracle on digits: it has no permutation",
        f"‡ improving: {listed}",
        "† unstable",
        "digits: scikit-learn",
    )
    cells = (("a", "1 ‡ [1]"), ("b", "2"))
    table = Table("t", f"A loss. Measured: {listed}. Bold: the lowest.", ("layer", "x"), cells, notes)
    above, _, text = latex(table).partition(r"\begin{table}")
    assert r"\caption{A loss. Bold: the lowest.}" in text and "unstable" not in text, "a mark that no cell has"
    short = escape_latex(f"{notes[1][:FOOTNOTE]}…")
    assert rf"{{[}}1] oracle on digits: it has no permutation\quad {short}\par" in text
    lines = above.splitlines()
    assert lines[1:] == [f"%   {escape_latex(text)}" for text in (f"Measured: {listed}.", *notes[1:])], "in full"
    assert latex(Table("t", "A loss.", ("a",), (("b",),))).startswith(r"\begin{table}"), "no comment"


@pytest.mark.system
def test_every_committed_table_compiles(tmp_path):
    files = sorted((Path(__file__).parents[3] / "reports").glob("*-*/table*.tex"))
    assert len(files) > 10
    log = compiled(tmp_path, "".join(rf"\input{{{file}}}\clearpage " for file in files))
    assert "Float too large" not in log


@pytest.mark.system
@pytest.mark.parametrize("columns", ["onecolumn", "twocolumn"])
def test_latex_compiles_and_fits_the_page(density_run, many_seeds, runtime_run, parameters_run, tmp_path, columns):
    plan, records = many_seeds(8)
    paper = plan.model_copy(update={"profile": "paper"}), records
    tables = [*tables_of(density_run), *tables_of(paper), *tables_of(runtime_run), *tables_of(parameters_run)]
    tables.append(Table("nasty", NASTY, ("layer", NASTY), ((NASTY, NASTY), ("[x]", "*")), (NASTY,)))
    log = compiled(tmp_path, "\n".join(map(latex, tables)), columns)
    assert "Overfull" not in log and "Float too large" not in log


def compiled(folder, body, columns="onecolumn"):
    """Return the log of pdflatex for a document with this body."""
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex on this machine")
    head = rf"\documentclass[{columns}]{{article}}\usepackage{{booktabs,graphicx}}"
    (folder / "t.tex").write_text(rf"{head}\begin{{document}}{body}\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_a_table_too_wide_to_read_is_cut_into_parts_that_keep_the_first_column_and_the_groups():
    names = [f"data-{number}" for number in range(12)]
    header = ("layer", *(f"{name}, {part}" for name in names for part in ("mean", "worst")))
    rows = tuple((f"row{n}", *(f"-{n}.{c:03d} [-9.999, 9.999]" for c in range(24))) for n in range(9))
    bold = frozenset({(0, 1), (3, 24)})
    table = Table("wide", "A caption.", header, rows, groups=(("", 1), *((name, 2) for name in names)), bold=bold)
    text = latex(table)
    parts = text.split(r"\begin{tabular}")[1:]
    assert len(parts) > 3 and text.count(r"\caption{A caption.}") == text.count(r"\label{tab:wide}") == 1
    assert text.count(r"\begin{table*}") == 1 + text.count(r"\addtocounter{table}{-1}") == 1 + text.count("(continued)")
    for part in parts:
        lines = [line for line in part.splitlines() if line.lstrip().startswith("row")]
        assert len(lines) == 9 and len({line.count("&") for line in lines}) == 1 and lines[0].count("&") % 2 == 0
        assert sum(4.6 * len(cell.strip()) for cell in lines[5].split("&")) < 900, "letters of six points and more"
    cells = [cell for part in parts for cell in re.findall(r"\d\.(\d{3}) \{\[\}", part)]
    assert sorted(cells) == sorted(f"{column:03d}" for column in range(24) for _ in rows)
    assert text.count(r"\textbf{") == 2
    narrow = replace(table, header=header[:3], rows=tuple(row[:3] for row in rows), groups=())
    assert latex(narrow).count(r"\begin{tabular}") == 1


def test_parts_whose_texts_fold_into_lines_take_as_many_pages_as_these_lines_need():
    def pages(text):
        rows = tuple((f"row{number}", *[text] * 4) for number in range(15))
        written = latex(Table("choices", "A caption.", ("layer", *"abcd"), rows, words=frozenset(range(1, 5))))
        assert written.count(r"\begin{tabular}") == 2
        return written.count(r"\begin{table*}")

    assert pages("x " * 40) == 2  # two lines in each row, thus 33 in each part, of 48 on a page
    assert pages("x " * 24 + "x") == 2
    assert pages("x" * 40) == 1


def test_a_terminal_shows_a_table_in_parts_and_a_pipe_gets_it_whole(monkeypatch):
    table = Table("t", "caption", ("layer", *map(str, range(9))), (("a", *["2.391 [2.371, 2.403]"] * 9),))
    assert plain(table).count("layer") == 1
    monkeypatch.setattr(rendering, "terminal_width", WIDTH)
    monkeypatch.setenv("COLUMNS", "100")
    text = plain(table)
    assert text.count("layer") == 3 and max(map(len, text.splitlines())) <= 100
    assert text.count("[2.371") == 9 and text.count("caption") == 1
