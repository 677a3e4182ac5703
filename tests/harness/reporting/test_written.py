"""A report removes the files that only an earlier one had, and neither writes nor removes anything through a link."""

import pytest

from harness.core.errors import UserError
from harness.reporting.written import write_files

FIRST = {"table.md": b"1", "figures/a.svg": b"1", "figures/b.svg": b"1", "table-at-steps.md": b"1"}
SECOND = {"table.md": b"2", "figures/a.svg": b"2"}
OPTIONAL = ("figures/*.svg", "table-at-*")
MINE = {"figures/data.txt": b"mine", "table-mine.md": b"mine", "notes.txt": b"mine"}


def texts(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_files_that_only_the_last_report_had_are_removed_by_name_and_others_stay(tmp_path, capsys):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "kept.svg").write_bytes(b"x")
    run = tmp_path / "run"
    write_files(run, FIRST | MINE, ())
    (run / "figures" / "link.svg").symlink_to(victim / "kept.svg")
    (run / "figures" / "folder.svg").mkdir()
    write_files(run, SECOND, OPTIONAL)
    assert texts(run) == SECOND | MINE
    removed = [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert removed == [str(run / name) for name in ("figures/b.svg", "figures/link.svg", "table-at-steps.md")]
    assert texts(victim) == {"kept.svg": b"x"} and not (run / "figures" / "link.svg").is_symlink()


@pytest.mark.parametrize("name", FIRST)
def test_a_link_in_place_of_a_file_is_replaced(tmp_path, name):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    victim.write_text("mine")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(victim)
    write_files(folder, FIRST, OPTIONAL)
    assert victim.read_text() == "mine" and not (folder / name).is_symlink() and texts(folder) == FIRST


@pytest.mark.parametrize("content", [FIRST, {"table.md": b"1"}])
def test_nothing_is_written_or_removed_through_a_linked_folder(tmp_path, content):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    for place in (folder, victim):
        place.mkdir()
    (victim / "kept.svg").write_bytes(b"x")
    (folder / "figures").symlink_to(victim)
    with pytest.raises(UserError, match="figures"):
        write_files(folder, content, OPTIONAL)
    assert texts(victim) == {"kept.svg": b"x"} and not list(folder.glob("*.md"))
