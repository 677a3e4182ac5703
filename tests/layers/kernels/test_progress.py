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


def test_steps_and_the_remaining_time(capsys, clock):
    build = Progress("CPU", [4, 2, 2], 2)
    clock[0] += 4
    build.finished(1, 4)  # half as fast as expected
    clock[0] += 3
    build.finished(0, 7)
    build.finished(2, 3)
    said = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("invertbench: building the CPU kernels (once): ") for line in said] == [
        "0 of 3 steps done, about 4 s left",
        "1 of 3 steps done, about 4 s left",
        "2 of 3 steps done, about 1 s left",
        "3 of 3 steps done",
    ]


def test_a_terminal_shows_one_line(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    Progress("CPU", [1], 1).finished(0, 1)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("1 of 1 steps done\n") and said.count("\r\x1b[K") == 2


def test_a_waiting_process_says_so_and_takes_the_result(tmp_path, capsys):
    library, release, made = tmp_path / "kernels" / "a-b" / "lib.so", threading.Event(), []

    def make(folder):
        assert release.wait(60)
        (folder / "lib.so").write_bytes(b"library")
        made.append(folder)

    both = [threading.Thread(target=find_or_make, args=(library, make)) for _ in range(2)]  # locks are of open files
    for one in both:
        one.start()
    said, end = "", time.monotonic() + 60
    while "another process is building" not in said and time.monotonic() < end:
        said += capsys.readouterr().err
        time.sleep(0.01)
    release.set()
    for one in both:
        one.join(60)
    assert said.count("another process is building") == 1 and len(made) == 1 and library.is_file()


def test_a_build_that_fails_says_so(capsys):
    with pytest.raises(BuildFailed):
        run_together([[sys.executable, "-c", "pass"], [sys.executable, "-c", "exit(1)"]], [1, 1], "CPU")
    assert "building the CPU kernels has failed" in capsys.readouterr().err
