import functools
import http.server
import threading

import pytest

from harness.datasets import Store


@pytest.fixture
def store(tmp_path):
    """Return an offline store of an empty data root and an empty cache."""
    (tmp_path / "root").mkdir()
    return Store(tmp_path / "root", tmp_path / "cache", offline=True)


class Recorder(http.server.SimpleHTTPRequestHandler):
    """Serve a folder and keep the requested paths."""

    def do_GET(self):
        self.server.asked.append(self.path)
        super().do_GET()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def served(tmp_path):
    """Return (folder, address, requested paths) of a server of a new folder."""
    folder = tmp_path / "remote"
    folder.mkdir()
    handler = functools.partial(Recorder, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/", server.asked
        server.shutdown()
        thread.join()
