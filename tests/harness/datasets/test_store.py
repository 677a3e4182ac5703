"""The cache of prepared arrays: built once, atomically, and rebuilt when necessary."""

import contextlib
import errno
import gzip
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import DataError, DataMissing
from harness.datasets._store.store import META, Store, prepare

VALUES = np.arange(24, dtype=np.int16).reshape(2, 3, 4)


class Builder:
    """Write two arrays and a note, and count the calls."""

    def __init__(self, values=VALUES):
        self.values = values
        self.calls = 0

    def __call__(self, writer):
        self.calls += 1
        writer.save("whole", self.values)
        piecewise = writer.create("piecewise", (2, *self.values.shape), self.values.dtype)
        piecewise[0], piecewise[1] = self.values, -self.values
        writer.notes["calls"] = self.calls


@pytest.fixture
def store(tmp_path):
    return Store(root=None, cache=tmp_path / "cache")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.write_bytes(b"content")
    return path


def leftovers(store):
    return [path.name for path in (store.cache / "prepared").glob(".*")]


def test_arrays_are_prepared_once_and_read_only(store, source):
    build = Builder()
    made = prepare(store, "numbers", {"size": 3}, [source], build)
    again = prepare(store, "numbers", {"size": 3}, [source], build)
    assert build.calls == 1
    for prepared in (made, again):
        np.testing.assert_array_equal(prepared.array("whole"), VALUES)
        np.testing.assert_array_equal(prepared.array("piecewise"), [VALUES, -VALUES])
        assert prepared.array("whole").dtype == np.int16
        with pytest.raises(ValueError, match="read-only"):
            prepared.array("whole")[0] = 1
    assert again.meta["notes"] == {"calls": 1} and again.checksum == made.checksum
    assert leftovers(store) == []


def test_the_checksum_is_of_the_arrays_alone(store, source, tmp_path):
    second_source = tmp_path / "other"
    second_source.write_bytes(b"other content")
    same = [prepare(store, "numbers", {}, [path], Builder()) for path in (source, second_source)]
    assert same[0].folder != same[1].folder and same[0].checksum == same[1].checksum
    assert prepare(store, "numbers", {"size": 4}, [source], Builder(VALUES + 1)).checksum != same[0].checksum


@pytest.mark.parametrize("change", ["content", "time"])
def test_a_changed_source_is_prepared_again_and_replaces_the_old(store, source, change):
    build = Builder()
    before = prepare(store, "numbers", {}, [source], build)
    kept = prepare(store, "numbers", {"other": 1}, [source], build)
    facts = source.stat()
    if change == "content":
        source.write_bytes(b"content, longer")
        os.utime(source, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    else:
        os.utime(source, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    after = prepare(store, "numbers", {}, [source], build)
    assert build.calls == 3 and after.meta["notes"] == {"calls": 3}
    assert after.folder == before.folder != kept.folder and kept.folder.exists()


DAMAGES = {
    "truncated array": lambda folder: os.truncate(folder / "whole.npy", 100),
    "missing array": lambda folder: (folder / "piecewise.npy").unlink(),
    "garbage meta": lambda folder: (folder / META).write_bytes(b"\xff{"),
    "meta without arrays": lambda folder: (folder / META).write_text('{"key": {}, "arrays": {}}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_rebuilt(store, source, damage):
    build = Builder()
    folder = prepare(store, "numbers", {}, [source], build).folder
    DAMAGES[damage](folder)
    prepared = prepare(store, "numbers", {}, [source], build)
    assert build.calls == 2 and prepared.folder == folder
    np.testing.assert_array_equal(prepared.array("whole"), VALUES)
    np.testing.assert_array_equal(prepared.array("piecewise")[1], -VALUES)
    prepare(store, "numbers", {}, [source], build)
    assert build.calls == 2


def test_a_builder_that_raises_leaves_nothing(store, source):
    def build(writer):
        writer.save("whole", VALUES)
        raise DataError("numbers: source: damaged")

    for _ in range(2):
        with pytest.raises(DataError, match=r"^numbers: source: damaged$"):
            prepare(store, "numbers", {}, [source], build)
        assert [path.suffix for path in (store.cache / "prepared").iterdir()] == [".lock"]
    np.testing.assert_array_equal(prepare(store, "numbers", {}, [source], Builder()).array("whole"), VALUES)


def _prepare_slowly(store, source, log, barrier):
    def build(writer):
        with log.open("a") as file:
            file.write("built\n")
        time.sleep(0.5)
        writer.save("whole", VALUES)

    barrier.wait()
    np.testing.assert_array_equal(prepare(store, "numbers", {}, [source], build).array("whole"), VALUES)


def test_two_processes_at_once_prepare_once(store, source, tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, log = context.Barrier(3), tmp_path / "log"
    processes = [context.Process(target=_prepare_slowly, args=(store, source, log, barrier)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert log.read_text() == "built\n"


STUCK = """
import sys, time
from pathlib import Path
import numpy as np
from harness.datasets._store.store import Store, prepare

def build(writer):
    writer.create("whole", (1000,), np.uint8)[:] = 1
    print("half", flush=True)
    time.sleep(600)

prepare(Store(None, Path(sys.argv[1])), "numbers", {"key": sys.argv[2]}, [Path(sys.argv[3])], build)
"""


@contextlib.contextmanager
def stuck_build(store, source, key):
    """Return a process in the middle of a build; kill it at the end."""
    command = [sys.executable, "-c", STUCK, str(store.cache), key, str(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "half\n"
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def test_a_killed_build_leaves_no_complete_entry(store, source):
    with stuck_build(store, source, "a"):
        pass
    assert len(leftovers(store)) == 1
    build = Builder()
    prepared = prepare(store, "numbers", {"key": "a"}, [source], build)  # the lock of the ended process does not block
    assert build.calls == 1 and leftovers(store) == []
    np.testing.assert_array_equal(prepared.array("whole"), VALUES)


def test_an_unwritable_cache_is_reported(tmp_path, source):
    for cache in (tmp_path / "file", tmp_path / "file" / "below"):
        (tmp_path / "file").write_text("not a folder")
        with pytest.raises(DataError, match=rf"{cache}: the cache .* cannot be used .*INVERTBENCH_CACHE") as caught:
            prepare(Store(None, cache), "numbers", {}, [source], Builder())
        assert caught.value.exit_code == 3


def raising(error):
    def build(writer):
        raise error

    return build


@pytest.mark.parametrize(
    "build",
    [
        lambda writer: shutil.rmtree(writer.folder) or writer.save("whole", VALUES),
        lambda writer: writer.create("whole", (1 << 62,), np.uint8),  # larger than any disk
    ],
    ids=["gone", "too large"],
)
def test_errors_of_the_cache_name_the_cache(store, source, build):
    with pytest.raises(DataError, match=r"the cache of prepared data cannot be used .*INVERTBENCH_CACHE"):
        prepare(store, "numbers", {}, [source], build)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda writer: Path("absent").read_bytes(), r"numbers: absent: cannot be read \(No such file or directory\)"),
        (raising(gzip.BadGzipFile("Not a gzipped file")), r"numbers: cannot be read \(Not a gzipped file\)"),
        (raising(OSError(errno.EIO, "Input/output error")), r"numbers: cannot be read \(Input/output error\)"),
    ],
    ids=["absent", "decoder", "disk"],
)
def test_errors_of_a_source_do_not_name_the_cache(store, source, build, message):
    with pytest.raises(DataError, match=f"^{message}$"):
        prepare(store, "numbers", {}, [source], build)
    np.testing.assert_array_equal(prepare(store, "numbers", {}, [source], Builder()).array("whole"), VALUES)


def test_files_of_the_root_are_found_or_named(store, source):
    with pytest.raises(DataMissing, match=r"numbers: source is looked for in a data root, and none is named"):
        store.find("numbers", "source", "Get it.")
    rooted = Store(source.parent, store.cache)
    assert rooted.find("numbers", "source", "Get it.") == source
    with pytest.raises(DataMissing, match=r"numbers: .*/other: no such file or folder; Get it\."):
        rooted.find("numbers", "other", "Get it.")
    assert store.find("numbers", str(source), "Get it.") == source
    with pytest.raises(DataMissing, match="cannot be looked up"):
        rooted.find("numbers", "a" * 300, "Get it.")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "nothing"])
def test_a_source_that_is_no_regular_file_is_refused_before_it_is_read(store, tmp_path, kind):
    path, build = tmp_path / "it", Builder()
    make = {"pipe": lambda: os.mkfifo(path), "device": lambda: path.symlink_to("/dev/zero"), "folder": path.mkdir}
    make["nothing"] = lambda: None
    make[kind]()
    with pytest.raises(
        DataError, match=r"made: .*it: cannot be read \((it is (not a regular file|a folder)|No such file)"
    ):
        prepare(store, "made", {"version": 1}, [path], build)
    assert not build.calls
