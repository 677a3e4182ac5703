"""The log of a process has a limit: its beginning, its end, and how much was dropped."""

import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest

from harness.core.isolation import log as logs
from harness.core.isolation.log import Log


@pytest.fixture
def pipe():
    """Return both ends of a pipe for output."""
    reading, writing = multiprocessing.Pipe(duplex=False)
    yield reading, writing
    writing.close()


def written(pipe, path, parts):
    reading, writing = pipe
    log = Log(reading, path)
    log.start()
    for part in parts:
        os.write(writing.fileno(), part)
    writing.close()
    log.finish()
    return path.read_bytes()


def test_a_short_log_is_unchanged(pipe, tmp_path):
    parts = [b"%d\n" % number for number in range(1000)]
    assert written(pipe, tmp_path / "log", parts) == b"".join(parts)


@pytest.mark.parametrize("spare", [0, 1])
def test_a_long_log_keeps_its_head_and_tail(pipe, tmp_path, monkeypatch, spare):
    monkeypatch.setattr(logs, "HEAD", 100)
    monkeypatch.setattr(logs, "TAIL", 200)
    whole = bytes(index % 251 for index in range(300 + spare))
    content = written(pipe, tmp_path / "log", [whole])
    if not spare:
        assert content == whole
        return
    first, note, last = content[:100], *content[100:].split(b"]\n", 1)
    assert first == whole[:100] and b"bytes are left out here" in note and whole.endswith(last) and len(last) >= 200


def test_a_flood_takes_no_space_and_says_how_much_was_dropped(pipe, tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "HEAD", 1000)
    monkeypatch.setattr(logs, "TAIL", 100_000)
    sizes, over = [], threading.Event()

    def watch():
        while not over.is_set():
            sizes.append((tmp_path / "log").stat().st_size if (tmp_path / "log").exists() else 0)
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    content = written(pipe, tmp_path / "log", [b"x" * 50_000] * 200 + [b"the last line\n"])
    over.set()
    watcher.join()
    assert max(sizes) < 300_000 and len(content) < 300_000 and content.endswith(b"x" * 90_000 + b"the last line\n")
    note, tail = content[1000:].split(b"]\n")
    dropped = int(note.split()[0].strip(b"[").replace(b",", b""))
    assert 1000 + dropped + len(tail) == 200 * 50_000 + 14


def test_a_process_that_cannot_be_ended_does_not_keep_the_log_open(pipe, tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LAST_SECONDS", 0.1)
    monkeypatch.setattr(logs, "LOOK_SECONDS", 0.05)
    reading, writing = pipe
    log = Log(reading, tmp_path / "log")
    log.start()
    os.write(writing.fileno(), b"said")
    log.finish()
    assert not log.is_alive() and (tmp_path / "log").read_bytes() == b"said"


def test_a_full_disk_does_not_stop_the_process(pipe):
    reading, writing = pipe
    log = Log(reading, Path("/dev/full"))
    log.start()
    for _ in range(20):
        os.write(writing.fileno(), b"x" * 50_000)  # more than the pipe holds
    writing.close()
    log.finish()
    assert not log.is_alive()
