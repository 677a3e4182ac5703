"""The page that links reports."""

import shutil

import pytest

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
    for name in ("digits-accounting", "a-likelihood"):
        (other / "figures" / f"{name}.png").write_bytes(b"")
    assert main(["gallery", str(folder.parent)]) == 0
    text = (folder.parent / "index.html").read_text()
    assert text.count("Which?") == 2 and "lead, no test" in text
    assert text.count("<img") == 1 and 'src="seen%20here/figures/digits-accounting.png"' in text
    assert 'href="seen%20here/table.md"' in text and f'href="{folder.name}/index.html">page' in text
    assert "&lt;/title&gt;&lt;script&gt;alert(3)" in text and "<script>" not in text


def test_the_gallery_counts_findings_that_it_does_not_show(density_run, write_run, no_figures, monkeypatch):
    folder = write_run(*density_run)
    write_report(folder)
    monkeypatch.setattr(gallery, "MOST", 1)
    text = gallery.write_gallery(folder.parent).read_text()
    assert text.count('class="chip"') == 1 and "and 1 more" in text


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
