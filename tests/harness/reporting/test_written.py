"""A report removes only what a report wrote, and neither writes nor removes anything through a link."""

import hashlib
import json

import pytest

from harness.core.errors import UserError
from harness.reporting.written import MANIFEST, write_files

FIRST = {"table.md": b"1", "figures/a.svg": b"1", "figures/b.svg": b"1", "table-at-steps.md": b"1"}
SECOND = {"table.md": b"2", "figures/a.svg": b"2"}
PASSING = ("figures/", "table-")


def write(folder, content):
    write_files(folder, content, PASSING)


def texts(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_files_of_the_last_report_are_replaced_or_removed(tmp_path):
    write(tmp_path, FIRST)
    assert texts(tmp_path) == FIRST
    write(tmp_path, SECOND)
    assert texts(tmp_path) == SECOND


def test_what_a_user_added_or_edited_stays(tmp_path):
    (tmp_path / "figures").mkdir()
    mine = {"figures/my-edited.svg": b"mine", "table-mine.md": b"mine", "notes.txt": b"mine"}
    for name, content in mine.items():
        (tmp_path / name).write_bytes(content)
    write(tmp_path, FIRST)
    (tmp_path / "figures" / "b.svg").write_bytes(b"edited")
    write(tmp_path, SECOND)
    assert texts(tmp_path) == SECOND | mine | {"figures/b.svg": b"edited"}


def test_a_list_of_other_files_removes_nothing(tmp_path):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    victim.mkdir()
    (victim / "kept.svg").write_bytes(b"x")
    write(folder, FIRST)
    (folder / "figures" / "link").symlink_to(victim)
    (folder / "figures" / "link.svg").symlink_to(victim / "kept.svg")
    (folder / "linked").symlink_to(victim)
    names = ("../victim/kept.svg", str(victim / "kept.svg"), "figures/link/kept.svg", "linked/kept.svg")
    names = (*names, "figures/link.svg", "figures/../../victim/kept.svg", "a\0b", "", "figures", "/")
    digest = hashlib.sha256(b"x").hexdigest()
    for content in (json.dumps(dict.fromkeys(names, digest) | {"table.md": 3}), "[]", "[" * 100_000, "{", '{"a": '):
        (folder / MANIFEST).write_text(content)
        write(folder, SECOND)
    assert (victim / "kept.svg").read_bytes() == b"x" and (folder / "figures" / "link.svg").is_symlink()


@pytest.mark.parametrize("name", [*FIRST, MANIFEST])
def test_a_link_in_place_of_a_file_is_replaced(tmp_path, name):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    victim.write_text("mine")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(victim)
    write(folder, FIRST)
    assert victim.read_text() == "mine" and not (folder / name).is_symlink() and texts(folder) == FIRST


def test_nothing_is_written_through_a_linked_folder(tmp_path):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    for place in (folder, victim):
        place.mkdir()
    (folder / "figures").symlink_to(victim)
    with pytest.raises(UserError, match="figures: is a symbolic link"):
        write(folder, FIRST)
    assert not list(victim.iterdir()) and not list(folder.glob("*.md"))
