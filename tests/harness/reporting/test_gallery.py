"""The page that links reports."""

import pytest

from harness.cli.parser import main
from harness.core.errors import UserError
from harness.reporting.page.gallery import MOST, write_gallery
from harness.reporting.report import write_report


def test_the_gallery_links_every_report_with_its_question_and_answer(hostile_run, write_run, no_figures, tmp_path):
    folder = write_run(*hostile_run)
    write_report(folder)
    other = folder.parent / "claims here"
    (other / "figures").mkdir(parents=True)
    for name in ("mimic-accounting", "a-likelihood"):
        (other / "figures" / f"{name}.png").write_bytes(b"")
    (other / "table.md").write_text(
        "# T\n\nWhich\\_ one?\n\n| claim |\n| [it mixes](#m) | **does not hold** | by -2 |\n"
    )
    assert main(["gallery", str(folder.parent)]) == 0
    text = (folder.parent / "index.html").read_text()
    assert text.index("Which_ one?") < text.index("does not hold") < text.index('src="claims%20here/figures/mimic-acc')
    assert text.count("<img") == 1 and 'href="claims%20here/table.md"' in text
    assert "&lt;/title&gt;&lt;script&gt;alert(3)" in text and "<script>" not in text
    assert f'href="{folder.name}/index.html">page' in text and "lead, no test" in text


def test_the_gallery_counts_findings_that_it_does_not_show(tmp_path):
    findings = [f"- **data {number}** (not ranked): nothing" for number in range(MOST + 2)]
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "table.md").write_text("# T\n\nWhich?\n\n" + "\n".join(findings) + "\n")
    text = write_gallery(tmp_path).read_text()
    assert text.count("not ranked") == MOST and f"data {MOST}" not in text and "and 2 more" in text


def test_a_folder_without_reports_has_no_gallery(tmp_path):
    with pytest.raises(UserError, match=r"none of its folders has a table\.md"):
        write_gallery(tmp_path)


def test_a_report_that_cannot_be_read_is_named_and_left_out(tmp_path, capsys):
    contents = {"binary": b"\xff\xfe\n\n", "empty": b"", "good": b"# T\n\nWhich?\n\nx"}
    for name, content in contents.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "table.md").write_bytes(content)
    (tmp_path / "folder" / "table.md").mkdir(parents=True)
    assert main(["gallery", str(tmp_path)]) == 0
    left_out = [line.split(":")[1].rpartition("/")[2] for line in capsys.readouterr().err.splitlines()]
    assert left_out == ["binary", "empty", "folder"]
    assert "Which?" in (tmp_path / "index.html").read_text()
