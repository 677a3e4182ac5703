"""The cache: arrays prepared once, atomically, and again when necessary; downloads from a local server."""

import errno
import gzip
import http.server
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import DataError, DataMissing
from harness.datasets._store.store import META, Store, fetch, prepare

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


def at_once(task, *arguments):
    """Run a task in three processes, which begin together."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    processes = [context.Process(target=task, args=(*arguments, barrier)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]


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
    assert again.notes == {"calls": 1} and again.checksum == made.checksum
    assert leftovers(store) == []


def test_the_checksum_is_of_the_arrays_alone(store, source, tmp_path):
    second_source = tmp_path / "other"
    second_source.write_bytes(b"other content")
    same = [prepare(store, "numbers", {}, [path], Builder()) for path in (source, second_source)]
    assert same[0].folder != same[1].folder and same[0].checksum == same[1].checksum
    assert prepare(store, "numbers", {"size": 4}, [source], Builder(VALUES + 1)).checksum != same[0].checksum


@pytest.mark.parametrize("change", ["content", "time"])
def test_a_changed_source_is_prepared_again(store, source, change):
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
    assert build.calls == 3 and after.notes == {"calls": 3}
    assert len({after.folder, before.folder, kept.folder}) == 3


@pytest.mark.parametrize("left", [None, 0, 5, 100, 150])
def test_a_damaged_array_names_its_folder(store, source, left):
    prepared = prepare(store, "numbers", {}, [source], Builder())
    path = prepared.folder / "whole.npy"
    path.unlink() if left is None else os.truncate(path, left)
    with pytest.raises(DataError, match=rf"{prepared.folder}: damaged .*; remove this folder of the cache"):
        prepare(store, "numbers", {}, [source], Builder()).array("whole")


@pytest.mark.parametrize("content", [b"", b"\xff{", b"[]", b'{"arrays": {}}', b'{"arrays": {}, "notes": 1}', None])
def test_a_damaged_meta_names_its_folder(store, source, content):
    folder = prepare(store, "numbers", {}, [source], Builder()).folder
    (folder / META).unlink() if content is None else (folder / META).write_bytes(content)
    with pytest.raises(DataError, match=rf"^{folder}: damaged .*; remove this folder of the cache$"):
        prepare(store, "numbers", {}, [source], Builder())


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
    log = tmp_path / "log"
    at_once(_prepare_slowly, store, source, log)
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

prepare(Store(None, Path(sys.argv[1])), "numbers", {}, [Path(sys.argv[2])], build)
"""


def test_a_killed_build_leaves_no_complete_entry(store, source):
    command = [sys.executable, "-c", STUCK, str(store.cache), str(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        process.kill()
    assert said == "half\n" and len(leftovers(store)) == 1
    build = Builder()
    prepared = prepare(store, "numbers", {}, [source], build)  # the lock of the ended process does not block
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


# Downloads

CONTENT = bytes(range(256)) * 4096  # one MiB


class Server(http.server.ThreadingHTTPServer):
    """A server that returns `content` for every path and counts requests.

    `sent` limits how much of the announced length is sent before the connection ends; `delay` is in seconds.
    """

    content, sent, delay, status = CONTENT, None, 0.0, 200

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests += 1
        time.sleep(self.server.delay)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content[: self.server.sent])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def downloads(store):
    """Return the name of every downloaded file, without locks."""
    return {path.name for path in (store.cache / "downloads").rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_a_file_is_fetched_once(store, server):
    path = fetch(store, "numbers/a/file.bin", server.url)
    assert path == store.cache / "downloads" / "numbers" / "a" / "file.bin"
    assert path.read_bytes() == CONTENT
    assert fetch(store, "numbers/a/file.bin", server.url) == path
    assert fetch(Store(None, store.cache, offline=True), "numbers/a/file.bin", server.url) == path
    assert server.requests == 1
    assert downloads(store) == {"file.bin"}


@pytest.mark.parametrize("sent", [0, 1, len(CONTENT) - 1])
def test_an_interrupted_download_leaves_no_file(store, server, sent):
    server.sent = sent
    with pytest.raises(DataMissing, match=r"numbers: file could not be fetched .*IncompleteRead"):
        fetch(store, "numbers/file", server.url)
    assert downloads(store) == set()
    server.sent = None
    assert fetch(store, "numbers/file", server.url).read_bytes() == CONTENT


def test_http_errors_and_unreachable_servers_give_one_line(store, server):
    server.status = 404
    with pytest.raises(DataMissing, match=r": 404 Client Error: .* Try again, or put it .*/file, or ask Ann"):
        fetch(store, "numbers/file", server.url, by_hand="or ask Ann")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file"
        with pytest.raises(DataMissing, match=r"Connection refused.*\. Try") as caught:
            fetch(store, "numbers/file", url)
    assert "\n" not in str(caught.value)
    assert downloads(store) == set()


def test_offline_the_message_names_file_url_and_folder(store, server):
    offline = Store(None, store.cache, offline=True)
    with pytest.raises(DataMissing) as caught:
        fetch(offline, "numbers/file", server.url, by_hand="or into numbers/ of a data root")
    place = store.cache / "downloads" / "numbers" / "file"
    assert str(caught.value) == (
        f"numbers: file is not there, and offline nothing is fetched. It comes from {server.url}; put it at {place}, "
        "or into numbers/ of a data root"
    )
    assert server.requests == 0 and not store.cache.exists()
    place.parent.mkdir(parents=True)
    place.write_bytes(CONTENT)  # by hand
    assert fetch(offline, "numbers/file", server.url) == place


def _fetch(store, url, barrier):
    barrier.wait()
    fetch(store, "numbers/file", url)


def test_two_processes_fetch_once(store, server):
    server.delay = 0.5
    at_once(_fetch, store, server.url)
    assert server.requests == 1


def test_a_file_has_its_name_when_it_is_complete_and_the_rest_of_a_killed_download_is_overwritten(store, server):
    halfway = []

    class Watching(Handler):
        def send_response(self, code):
            halfway.append(downloads(store))
            super().send_response(code)

        def end_headers(self):
            super().end_headers()
            self.wfile.write(CONTENT[:1000])
            self.wfile.flush()
            halfway.append(downloads(store))
            self.server.content = CONTENT[1000:]

    server.RequestHandlerClass = Watching
    part = store.cache / "downloads" / "numbers" / "file.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT[:500])
    with pytest.raises(DataMissing, match="offline nothing is fetched"):
        fetch(Store(None, store.cache, offline=True), "numbers/file", server.url)
    assert fetch(store, "numbers/file", server.url).read_bytes() == CONTENT
    assert halfway == [{"file.part"}] * 2 and downloads(store) == {"file"}
