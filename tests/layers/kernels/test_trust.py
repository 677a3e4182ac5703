"""A library that another user could have written, or that is damaged, is not loaded."""

import os
import stat
from contextlib import nullcontext

import pytest

from layers.kernels import build, trust
from layers.kernels.build import BuildFailed, find_or_make


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Return the builds so far, and a function that finds or makes the library."""
    monkeypatch.setattr(trust.tempfile, "gettempdir", lambda: str(tmp_path))
    library, builds = tmp_path / "cache" / "kernels" / "a-b" / "lib.so", []

    def make(folder):
        builds.append(folder)
        (folder / "lib.so").write_bytes(b"library %d" % len(builds))

    return builds, lambda: find_or_make(library, make)


def private(path):
    return f"invertbench-{os.geteuid()}" in path.parts


def test_a_library_is_made_once_and_others_cannot_write_it(made):
    builds, find = made
    before = os.umask(0o002)
    try:
        library = find()
    finally:
        os.umask(before)
    assert find() == library and len(builds) == 1 and not private(library)
    for path in (library, library.parent, library.parent.parent, *library.parent.iterdir()):
        assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH), path


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "digest", "no digest", "gone", "pipe"])
def test_a_damaged_library_is_made_again(made, damage):
    builds, find = made
    library = find()
    digest = library.with_name(f"{library.name}.sha256")
    changes = {
        "cut": lambda: library.write_bytes(library.read_bytes()[:4]),
        "bit": lambda: library.write_bytes(b"Library 1"),
        "empty": lambda: library.write_bytes(b""),
        "digest": lambda: digest.write_bytes(b"\xff"),
        "no digest": digest.unlink,
        "gone": library.unlink,
        "pipe": lambda: (library.unlink(), os.mkfifo(library)),
    }
    changes[damage]()
    assert find() == library and find().read_bytes() == b"library 2" and len(builds) == 2


@pytest.mark.parametrize("which", ["library", "build", "cache", "every"])
def test_what_others_can_write_is_left_and_a_private_one_is_made(made, which, capsys):
    builds, find = made
    library = find()
    places = {"library": library, "build": library.parent, "cache": library.parent.parent}
    places |= {"every": library.parent.parent.parent}
    places[which].chmod(0o777 if which == "every" else 0o775)
    library.write_bytes(b"evil")
    assert private(find()) and find().read_bytes() == b"library 2" and len(builds) == 2
    assert f"{places[which]} can be written by" in capsys.readouterr().err and library.read_bytes() == b"evil"
    assert stat.S_IMODE(find().parents[2].stat().st_mode) == 0o700


def test_what_belongs_to_another_user_is_left(made, monkeypatch):
    _, find = made
    library = find()
    if os.geteuid() == 0:
        os.chown(library, 12345, -1)
    else:
        monkeypatch.setattr(trust.os, "geteuid", lambda: 12345)
        monkeypatch.setattr(build, "private_folder", lambda: library.parent.parent)
    with pytest.raises(BuildFailed, match="belongs to another user") if os.geteuid() == 12345 else nullcontext():
        assert private(find())
    assert library.read_bytes() == b"library 1"


@pytest.mark.parametrize("taken", ["file", "open", "link"])
def test_without_a_private_folder_nothing_is_loaded(made, tmp_path, taken):
    builds, find = made
    find().parent.chmod(0o777)
    place = tmp_path / f"invertbench-{os.geteuid()}"
    if taken == "open":
        place.mkdir()
        place.chmod(0o777)
    else:
        place.write_text("") if taken == "file" else place.symlink_to(tmp_path / "cache")
    with pytest.raises(BuildFailed, match="set \\$INVERTBENCH_CACHE to a folder that only you can write"):
        find()
    assert len(builds) == 1


def test_without_a_compiler_only_a_whole_trusted_build_is_used(made, tmp_path, monkeypatch):
    def missing():
        raise BuildFailed("no C++ compiler")

    monkeypatch.setattr(build, "find_compiler", missing)
    monkeypatch.setattr(build, "fingerprint", lambda *texts: "a")
    monkeypatch.setattr(build, "LIBRARY", "lib.so")
    _, find = made
    library, cache = find(), tmp_path / "cache" / "kernels"
    assert build.find_or_build(cache) == library
    library.chmod(0o666)
    with pytest.raises(BuildFailed, match="no C\\+\\+ compiler"):
        build.find_or_build(cache)
    library.chmod(0o600)
    library.write_bytes(b"cut")
    with pytest.raises(BuildFailed, match="no C\\+\\+ compiler"):
        build.find_or_build(cache)
