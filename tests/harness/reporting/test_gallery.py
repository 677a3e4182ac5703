"""The page that links reports."""

import re
import shutil

import pytest
from PIL import Image

from harness.cli.parser import main
from harness.core.errors import UserError
from harness.reporting.page import gallery
from harness.reporting.report import write_report


def test_the_gallery_links_every_report_with_its_question_and_answer(hostile_run, write_run, no_figures):
    folder = write_run(*hostile_run)
    write_report(folder)
    other = folder.parent / "seen here"
    shutil.copytree(folder, other)
    (other / "figures").mkdir()
    for name, color in {"digits-accounting": "red", "a-likelihood": "blue"}.items():
        Image.new("RGB", (192, 96), color).save(other / "figures" / f"{name}.png", dpi=(96, 96))
    assert main(["gallery", str(folder.parent)]) == 0
    text = (folder.parent / "index.html").read_text()
    assert text.count("Which?") == 2 and "lead, no test" in text
    [image] = re.findall(r"<img[^>]*>", text)
    assert 'src="seen%20here/figures/digits-accounting.png"' in image
    assert 'class="drawn"' in image, "a drawing, which dark mode inverts"
    assert 'href="seen%20here/table.md"' in text and f'href="{folder.name}/index.html">page' in text
    assert "&lt;/title&gt;&lt;script&gt;alert(3)" in text and text.count("<script>") == 1, "its own"


def test_the_gallery_folds_findings_beyond_the_first(density_run, write_run, no_figures, monkeypatch):
    folder = write_run(*density_run)
    write_report(folder)
    monkeypatch.setattr(gallery, "MOST", 1)
    shown, folded = gallery.write_gallery(folder.parent).read_text().split("<details><summary>1 more</summary>")
    assert shown.count('class="chip part"') == folded.count('class="chip part"') == 1


def test_the_suites_asked_for_most_come_first_and_others_by_name(parameters_run, replanned, write_run, no_figures):
    suites = {"a": ("zebra", "quick"), "b": ("alpha", "smoke"), "c": ("alpha", "local"), "d": ("tuned", "quick")}
    for name, (suite, profile) in suites.items():
        named = {"suite": suite, "profile": profile}
        folder = write_run(*replanned(parameters_run, lambda trial, named=named: named, **named))
        write_report(folder)
        folder.rename(folder.parent / name)
    text = gallery.write_gallery(folder.parent).read_text()
    assert re.findall(r'<h2><a href="(\w)/index.html">', text) == ["d", "b", "c", "a"]
    assert gallery.write_gallery(folder.parent).read_text() == text, "the same reports give the same page"
    [profiles] = re.findall(r'<select name="profile">(.*?)</select>', text)
    assert re.findall(r"<option>(\w+)", profiles) == ["quick", "smoke", "local"]


def test_reports_that_cannot_be_read_are_named_and_without_others_an_error(tmp_path, capsys):
    for name, content in {"binary": b"\xff\xfe", "no records": b"# T"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "table.md").write_bytes(content)
    (tmp_path / "binary" / "plan.json").write_bytes(b"\xff\xfe")
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match=r"none of its folders has a table\.md"):
        gallery.write_gallery(tmp_path)
    left_out = [line.split(":")[1].rpartition("/")[2] for line in capsys.readouterr().err.splitlines()]
    assert left_out == ["binary", "no records"]
