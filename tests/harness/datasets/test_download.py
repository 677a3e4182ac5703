"""Downloads from a local server, and pinned and wrong checksums."""

import hashlib
import http.server
import multiprocessing
import socket
import threading
import time

import pytest

from harness.core.errors import DataError, DataMissing
from harness.datasets._store.store import Store, fetch

CONTENT = bytes(range(256)) * 4096  # one MiB
SUM = hashlib.sha256(CONTENT).hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


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


@pytest.fixture
def store(tmp_path):
    return Store(root=None, cache=tmp_path / "cache")


def downloads(store):
    """Return the name of every downloaded file, without locks."""
    return {path.name for path in (store.cache / "downloads").rglob("*") if path.is_file() and path.suffix != ".lock"}


@pytest.mark.parametrize("pinned", [SUM, None], ids=["pinned", "unknown"])
def test_a_file_is_fetched_once(store, server, pinned):
    path = fetch(store, "numbers/a/file.bin", server.url, pinned)
    assert path == store.cache / "downloads" / "numbers" / "a" / "file.bin"
    assert path.read_bytes() == CONTENT
    assert fetch(store, "numbers/a/file.bin", server.url, pinned) == path
    assert fetch(Store(None, store.cache, offline=True), "numbers/a/file.bin", server.url, pinned) == path
    assert server.requests == 1
    assert downloads(store) == {"file.bin"}


def test_a_download_with_a_wrong_checksum_is_deleted(store, server):
    with pytest.raises(DataError) as caught:
        fetch(store, "numbers/file", server.url, OTHER)
    message = str(caught.value)
    assert server.url in message and SUM in message and OTHER in message and "Nothing was kept" in message
    assert downloads(store) == set()
    assert fetch(store, "numbers/file", server.url, SUM).read_bytes() == CONTENT


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
        fetch(offline, "numbers/file", server.url, SUM, by_hand="or into numbers/ of a data root")
    place = store.cache / "downloads" / "numbers" / "file"
    assert str(caught.value) == (
        f"numbers: file is not there, and offline nothing is fetched. It comes from {server.url}; put it at {place}, "
        "or into numbers/ of a data root"
    )
    assert server.requests == 0 and not store.cache.exists()
    place.parent.mkdir(parents=True)
    place.write_bytes(CONTENT)  # by hand
    assert fetch(offline, "numbers/file", server.url, SUM) == place


def _fetch(store, url, barrier):
    barrier.wait()
    fetch(store, "numbers/file", url, SUM)


def test_two_processes_fetch_once(store, server):
    server.delay = 0.5
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    processes = [context.Process(target=_fetch, args=(store, server.url, barrier)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
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
    assert fetch(store, "numbers/file", server.url, SUM).read_bytes() == CONTENT
    assert halfway == [{"file.part"}] * 2 and downloads(store) == {"file"}
