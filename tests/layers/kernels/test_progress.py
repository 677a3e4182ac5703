"""A build tells its progress, to those who wait for it as well."""

import sys
import threading
import time

import pytest

from layers.kernels import progress
from layers.kernels.build import BuildFailed, find_or_make, run_together
from layers.kernels.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """Return a list whose only entry is the time."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_steps_and_the_remaining_time(tmp_path, capsys, clock):
    path = tmp_path / "a.lock"
    with path.open("a+") as lock:
        build = Progress("CPU", [4, 2, 2], 2, lock)
        clock[0] += 4
        build.finished(1, 4)  # half as fast as expected
        assert path.read_text() == "building the CPU kernels (once): 1 of 3 steps done, about 4 s left"
        clock[0] += 3
        build.finished(0, 7)
        build.finished(2, 3)
    assert path.read_text() == "building the CPU kernels (once): 3 of 3 steps done"
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[0] for line in said] == ["invertbench"] * 4
    assert said[0].endswith("0 of 3 steps done, about 4 s left")
    assert said[2].endswith("2 of 3 steps done, about 1 s left")


def test_a_terminal_shows_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with (tmp_path / "a.lock").open("a+") as lock:
        Progress("CPU", [1], 1, lock).finished(0, 1)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("1 of 1 steps done\n") and said.count("\r\x1b[K") == 2


def test_a_waiting_process_is_told_the_progress_and_takes_the_result(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "WATCH", 0.01)
    library, release, made = tmp_path / "kernels" / "a-b" / "lib.so", threading.Event(), []

    def make(folder, lock):
        build = Progress("CPU", [7], 1, lock)
        assert release.wait(60)
        build.finished(0, 7)
        (folder / "lib.so").write_bytes(b"library")
        made.append(folder)

    both = [threading.Thread(target=find_or_make, args=(library, make)) for _ in range(2)]  # locks are of open files
    for one in both:
        one.start()
    said, end = "", time.monotonic() + 60
    waiting = "invertbench: another process is building the CPU kernels (once): 0 of 1 steps done, about 7 s left\n"
    while waiting not in said and time.monotonic() < end:
        said += capsys.readouterr().err
        time.sleep(0.01)
    assert waiting in said
    release.set()
    for one in both:
        one.join(60)
    said += capsys.readouterr().err
    assert "the other process has ended its build" in said and len(made) == 1 and library.is_file()
    assert said.count(waiting) == 1, "a line is written when it changes"


def test_a_build_that_fails_says_so(tmp_path, capsys):
    path = tmp_path / "a.lock"
    with path.open("a+") as lock, pytest.raises(BuildFailed):
        run_together([[sys.executable, "-c", "pass"], [sys.executable, "-c", "exit(1)"]], [1, 1], "CPU", lock)
    assert path.read_text() == "building the CPU kernels has failed" in capsys.readouterr().err
