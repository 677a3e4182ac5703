"""Files are opened only if they are regular and small enough; names from content lead nowhere else."""

import os
import socket
import stat
from pathlib import Path

import pytest

from harness.core.files import (
    atomic_file,
    checked_name,
    distinct_slugs,
    open_file,
    read_file,
    remove_unfinished,
    write_atomically,
)

OTHER = ("../x", "/etc/passwd", "a/b", "a\\b", "..", ".", "", ".hidden", "a b", "a\nb", "a\0b", "x" * 201, "C:x", "a\n")


def make(kind, path):
    """Make what is no regular file at the path; return what keeps it there."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "socket":
        server = socket.socket(socket.AF_UNIX)
        server.bind(os.path.relpath(path))
        return server
    else:
        path.touch()
        os.truncate(path, 300 << 30)
    return None


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "loop", "socket", "sparse"])
def test_what_is_no_small_regular_file_is_an_error_at_once(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "it"
    kept = make(kind, path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for read in (lambda: open_file(path, 1000), lambda: read_file(path, 1000)):
        with pytest.raises(OSError) as caught:
            read()
        assert caught.value.strerror
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "nothing stays open"
    del kept


def test_a_file_is_read_up_to_its_limit_and_through_a_link(tmp_path):
    path, link = tmp_path / "it", tmp_path / "link"
    path.write_bytes(b"x" * 1000)
    link.symlink_to(path)
    assert read_file(link, 1000) == b"x" * 1000
    with pytest.raises(OSError, match="it has 1,000 bytes, and at most 999 are read"):
        read_file(path, 999)
    assert read_file(Path("/proc/self/status"), 1 << 20).startswith(b"Name:"), "a file that states no size"


def test_names_of_trials_and_figures_are_names_and_what_could_be_another_path_is_none(case):
    for name in ("digits-conv1x1-s0-0123456789ab", "-0123456789ab", "samples-日本", "a.0.npz", "which_layer"):
        assert checked_name(name) == name
    for name in OTHER:
        with case(name=name), pytest.raises(ValueError, match="is no name of a file"):
            checked_name(name)


def test_different_labels_have_different_slugs_in_any_order():
    labels = ["a b", "a-b", "A B", "a_b", "../../x", "x", "+", "-", "日本", "中国", "y" * 300, "y" * 301, "ＡＢ"]
    slugs = distinct_slugs(labels)
    assert slugs["a-b"] == "a-b" and slugs["x"] == "x" and slugs["日本"] == "日本"
    assert len(set(slugs.values())) == len(labels) and list(map(checked_name, slugs.values()))
    assert slugs == distinct_slugs(labels[::-1])


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_written_files_have_the_permissions_that_the_umask_leaves(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "new" / "it", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new" / "it").stat().st_mode) == 0o666 & ~umask


def test_a_link_is_replaced_and_not_followed(tmp_path):
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("mine")
    link.symlink_to(victim)
    write_atomically(link, b"new")
    assert victim.read_text() == "mine" and link.read_text() == "new" and not link.is_symlink()


def test_only_unfinished_files_are_removed_and_through_no_link(tmp_path):
    inside = tmp_path / "in"
    with pytest.raises(KeyError), atomic_file(inside / "a.json") as file:
        [left] = inside.iterdir()
        kept = left.read_bytes(), left.name
        raise KeyError(file)
    (inside / kept[1]).touch()
    (inside / ".mine.tmp").touch()
    (tmp_path / "link").symlink_to(inside)
    remove_unfinished(tmp_path / "link")
    assert len(list(inside.iterdir())) == 2
    remove_unfinished(inside)
    assert [path.name for path in inside.iterdir()] == [".mine.tmp"]
