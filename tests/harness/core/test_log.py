"""The log of a process has a limit: its beginning, its end, and how much was dropped."""

import multiprocessing
import os
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


@pytest.mark.parametrize("beyond", [0, 1, 10_000])
def test_a_long_log_keeps_its_head_and_tail_and_says_how_much_was_dropped(pipe, tmp_path, monkeypatch, beyond):
    monkeypatch.setattr(logs, "HEAD", 100)
    monkeypatch.setattr(logs, "TAIL", 200)
    whole = bytes(index % 251 for index in range(300 + beyond))
    parts = [whole[start : start + 70] for start in range(0, len(whole), 70)]
    note = f"\n[{beyond:,} bytes are left out here: a log keeps the first 100 and the last 200]\n".encode() * (
        beyond > 0
    )
    assert written(pipe, tmp_path / "log", parts) == whole[:100] + note + whole[-200:]


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
