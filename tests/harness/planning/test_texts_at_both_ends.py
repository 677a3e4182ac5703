"""Every text that a suite may have is in a plan that can be read again; every other is refused with its place."""

import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.core.errors import SuiteError
from harness.core.texts import CONTROL, visible
from harness.planning.plan import Plan
from harness.planning.settle import settle
from harness.planning.suite import read_suite
from harness.reporting.figures.figure_style import plain
from harness.reporting.tables.rendering import Table, escape_markdown, latex

SPACES = "\u00a0\u00ad\u2009\u202f\u3000\u200b\u200d\u200e"
CONTROLS = ["\x1b", "\r", "\x7f", "\x85", "\u2028", "\u202e", "\u2067", "\ud800", "\uffff"]
TEXTS = st.text(st.sampled_from(SPACES + "aé比👩🔬$\\-5") | st.characters(exclude_categories=["Cs"]), max_size=20)


def suite(title="t", question="", layer="scale", dataset="digits"):
    return {
        "suite": "odd",
        "kind": "density",
        "title": title,
        "question": question,
        "layers": {layer: {"layer": "scale"}},
        "profiles": {"smoke": {"datasets": {dataset: {"data": "digits"}}}},
    }


@settings(deadline=None, max_examples=40)
@example(SPACES)
@given(TEXTS)
def test_a_title_is_refused_or_read_again(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("plan")
    if CONTROL.search(text):
        with pytest.raises(SuiteError, match="has the control character"):
            read_suite(suite(f"a{text}"))
        return
    plan = settle(read_suite(suite(f"a{text}", text)), "smoke", "cpu").plan().plan
    plan.save(folder)
    assert Plan.load(folder) == plan and plan.title == f"a{text}" == visible(plan.title)


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("part", ["title", "question", "layer", "dataset"])
def test_a_control_character_is_refused(control, part):
    with pytest.raises(SuiteError, match=r"odd: .* has the control character"):
        read_suite(suite(**{part: f"a{control}b"}))


@pytest.mark.parametrize("part", ["layer", "dataset"])
def test_labels_have_any_space_inside_and_some_visible_character(part):
    label = f"a{SPACES}b"
    whole = settle(read_suite(suite(**{part: label})), "smoke", "cpu", only=[f"{part}={label}"])
    changed = settle(read_suite(suite(**{part: label})), "smoke", "cpu", settings=[f"{part}s.{label}.flow.width=4"])
    assert len(whole.plan().selected) == len(changed.plan().selected) == 1
    with pytest.raises(SuiteError, match="has no visible character"):
        read_suite(suite(**{part: "\u200b\u200d"}))


def test_the_forms_of_a_table_show_them():
    assert escape_markdown(f"a{SPACES}b\t\n c") == f"a{SPACES}b c"
    text = latex(Table("t", "so\u00ad5 1\u202f000 比\u3000👩\u200d🔬", ("a",), (("é\u00a0\u2003ﬁ",),)))
    assert r"so\-{}5 1\,000 U+6BD4\quad{}U+1F469U+1F52C" in text and "é~\\ U+FB01" in text
    assert plain("a\u00ad\u3000比 $x$") == r"a U+6BD4 \$x\$"


@pytest.mark.system
def test_latex_sets_them(tmp_path):
    text = latex(Table("t", f"a{SPACES}5 ", ("h",), ((SPACES,), (f"é{SPACES}-1",))))
    head = "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}"
    (tmp_path / "t.tex").write_text(f"{head}\n{text}\n\\end{{document}}", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120).returncode == 0


def test_a_long_command_is_read_again(tmp_path):
    plan = settle(read_suite(suite()), "smoke", "cpu").plan().plan
    plan = plan.model_copy(update={"command": "\\n" * 40_000})  # long, and with what looks like an escape
    plan.save(tmp_path)
    assert Plan.load(tmp_path) == plan
