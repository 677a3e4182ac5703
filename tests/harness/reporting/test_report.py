"""Reports are functions of their records; files of an earlier one are removed, nothing is written through a link."""

import re

import pytest

from harness.core.errors import UserError
from harness.reporting.report import write_report
from harness.reporting.written import write_files


def contents(folder):
    """Return name -> content of the files of a folder, without its records."""
    files = (path for path in folder.rglob("*") if path.is_file() and "records" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_report_is_a_function_of_the_records_and_missing_trials_are_rows(runtime_run, write_run):
    plan, records = runtime_run
    folder = write_run(plan, records)
    write_report(folder)
    first = contents(folder)
    names = {"results.csv", "table.md", "table.tex", "index.html", "figures/runtime-batch.svg", "plan.json"}
    assert names <= set(first)
    write_report(folder)
    assert contents(folder) == first
    for record in records[3:]:
        (folder / "records" / f"{record.id}.json").unlink()
    assert "5 trials: 2 ok, 2 missing, 1 unsupported" in write_report(folder).report.plain()
    assert not (folder / "figures" / "runtime-batch.svg").exists(), "figures of an earlier report are removed"
    assert (folder / "results.csv").read_text().count(",missing,not yet run,") == 2 * 3 * 3


def test_a_report_writes_the_tables_as_markdown_and_latex(density_run, write_run, no_figures):
    folder = write_run(*density_run)
    write_report(folder)
    text = (folder / "table.md").read_text()
    assert text.startswith("# Layers made up\n\nWhich?\n")
    assert "2.010 \\[2.000, 2.020]" in text and text.rstrip().endswith("20 trials: 20 ok")
    tex = (folder / "table.tex").read_text()
    line = f"Suite made_up, profile quick, trials {density_run[0].digest}, invertbench of an unknown version."
    assert line in text and line in tex and density_run[0].digest in (folder / "index.html").read_text()
    assert tex.count(r"\toprule") == 5 and r"my\_layer \& co" in tex
    text = (folder / "index.html").read_text()
    assert 'href="results.csv"' in text and 'href="comparisons.csv"' in text and "records.zip" not in text
    assert (folder / "comparisons.csv").is_file()
    report = write_report(folder, at=["steps"], archive=True).report
    text = report.plain([report.table_at("steps")])
    assert text.startswith("Layers made up\n\nWhich?\n") and "At equal training steps" in text
    assert all(line in (folder / f"table-at-steps.{form}").read_text() for form in ("md", "tex"))
    assert "2.010 [2.000, 2.020]" in text and "my_layer & co" in text and "<script>" in text
    assert not re.search(r"\\|\*\*|&\w+;|^[#|]", text, re.M), "no Markdown"
    text = (folder / "index.html").read_text()
    assert 'href="records.zip"' in text and 'href="results.csv"' not in text
    assert (folder / "results.csv").is_file() and (folder / "records.zip").is_file()


def test_a_parameters_report_has_no_figures_and_its_own_columns(parameters_run, write_run):
    folder = write_run(*parameters_run)
    write_report(folder)
    assert set(contents(folder)) == {"plan.json", "results.csv", "table.md", "table.tex", "index.html"}
    header = (folder / "results.csv").read_text().splitlines()[0]
    columns = "status,reason,check,parameters,published,masked_free,device,id"
    assert header == f"suite,profile,kind,dataset,layer,width,seed,{columns}"
    plan, records = parameters_run
    hostile = {"title": "<script>alert(1)</script>", "question": "](javascript:x) <img src=x>"}
    folder = write_run(plan.model_copy(update=hostile), records)
    write_report(folder)
    text = (folder / "table.md").read_text()
    assert "<script>" not in text and "<img" not in text and "alert(1)" in text


def test_a_missing_plan_is_a_user_error_and_a_damaged_record_is_named(parameters_run, write_run, tmp_path):
    with pytest.raises(UserError, match=r"no plan\.json"):
        write_report(tmp_path)
    plan, records = parameters_run
    folder = write_run(plan, records)
    (folder / "records" / f"{records[2].id}.json").write_text("rubbish")
    text = write_report(folder).report.plain()
    assert f"Damaged: records/{records[2].id}.json: not a readable record" in text
    assert "6 trials: 5 ok, 1 damaged" in (folder / "table.md").read_text()
    for name in ("table.md", "index.html"):
        assert f"records/{records[2].id}.json" in (folder / name).read_text()


BEFORE = {"table.md": b"1", "figures/a.svg": b"1", "figures/b.svg": b"1", "table-at-steps.md": b"1"}
AFTER = {"table.md": b"2", "figures/a.svg": b"2"}
OPTIONAL = ("figures/*.svg", "table-at-*")
MINE = {"figures/data.txt": b"mine", "table-mine.md": b"mine", "notes.txt": b"mine"}


def test_files_that_only_the_last_report_had_are_removed_by_name_and_others_stay(tmp_path, capsys):
    run, victim = tmp_path / "run", tmp_path / "victim"
    write_files(victim, {"kept.svg": b"x"}, ())
    write_files(run, BEFORE | MINE, ())
    (run / "figures" / "link.svg").symlink_to(victim / "kept.svg")
    (run / "figures" / "folder.svg").mkdir()
    write_files(run, AFTER, OPTIONAL)
    assert contents(run) == AFTER | MINE
    removed = [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert removed == [str(run / name) for name in ("figures/b.svg", "figures/link.svg", "table-at-steps.md")]
    assert contents(victim) == {"kept.svg": b"x"} and not (run / "figures" / "link.svg").is_symlink()


@pytest.mark.parametrize("name", BEFORE)
def test_a_link_in_place_of_a_file_is_replaced(tmp_path, name):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    victim.write_text("mine")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(victim)
    write_files(folder, BEFORE, OPTIONAL)
    assert victim.read_text() == "mine" and not (folder / name).is_symlink() and contents(folder) == BEFORE


@pytest.mark.parametrize("content", [BEFORE, {"table.md": b"1"}])
def test_nothing_is_written_or_removed_through_a_linked_folder(tmp_path, content):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    write_files(victim, {"kept.svg": b"x"}, ())
    folder.mkdir()
    (folder / "figures").symlink_to(victim)
    with pytest.raises(UserError, match="figures"):
        write_files(folder, content, OPTIONAL)
    assert contents(victim) == {"kept.svg": b"x"} and not list(folder.glob("*.md"))
