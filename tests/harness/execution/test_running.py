"""`status` shows the trials of a run that uses the folder now, and none of a run that was killed."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.cli.parser import main
from harness.core.records import blank_record
from harness.core.run_options import RunOptions
from harness.execution.folder import RUNNING, claimed, make_folder, working
from harness.execution.local.running import running_lines, write_running
from harness.execution.local.slots import Slots
from harness.execution.local.supervisor import run_trials
from harness.execution.progress import Reporter

HERE = Path(__file__).parents[1]
PROJECT = HERE.parents[1]


def write(folder, **places):
    write_running(folder, {name: (place, time.time() - 600) for name, place in places.items()})


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "suite")


def test_a_line_says_how_long_a_trial_runs_and_where(folder):
    assert running_lines(folder) == []
    with claimed(folder):
        [line] = running_lines(folder)
        assert re.fullmatch(
            rf"a run uses this folder \(process {os.getpid()}, since 20\S+\): no trials running now", line
        )
        write(folder, digits="process 4713", **{"new\x1b": "worker tcp://a:1"})
        heading, first, second = running_lines(folder)
        (folder / RUNNING).write_bytes(b"[{}]")
        assert running_lines(folder) == [line], "a damaged list ends no status"
    assert heading.endswith(": 2 trials running now") and first == "  digits  running for 10 min (process 4713)"
    assert second == r"  new\x1b  running for 10 min (worker tcp://a:1)", "no escape sequence reaches a terminal"
    assert running_lines(folder) == [], "the run has ended"


def test_the_list_of_a_killed_run_is_not_that_of_the_next(folder):
    code = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(PROJECT)!r}, {str(Path(__file__).parent)!r}]
from test_running import write
from harness.execution.folder import claimed
with claimed(Path(sys.argv[1])):
    write(Path(sys.argv[1]), digits="here")
    print("written", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "written\n" and len(running_lines(folder)) == 2
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (folder / RUNNING).exists() and (folder / ".working").exists()
    assert running_lines(folder) == [], "its lock has gone with it"
    with claimed(folder):
        assert len(running_lines(folder)) == 1


def test_a_look_at_the_folder_refuses_no_run(folder):
    """`working` holds a shared lock for a moment, in which a run may begin."""
    with claimed(folder):
        assert working(folder) is not None
    with (folder / ".lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        with claimed(folder):
            pass
    assert working(folder) is None


def test_a_reporter_lists_the_trials_that_run(folder, capsys, trial):
    first, second = trial("a"), trial("b")
    with claimed(folder), Reporter(3, sys.stderr, folder) as reporter:
        reporter.started(trial("elsewhere"))
        for number, one in enumerate((first, second)):
            reporter.started(one, f"process {10 + number}")
        reporter.finished(second, blank_record(second, "ok", None))
        [line] = running_lines(folder)[1:]
        assert line.startswith(f"  {first.id}  running for") and line.endswith("(process 10)")
    assert not (folder / RUNNING).exists() and capsys.readouterr().err == f"[1/3] {second.slug}: ok\n"


def test_the_supervisor_names_the_process_of_each_trial(folder, monkeypatch, trial):
    monkeypatch.syspath_prepend(HERE)
    import faulty_trials

    class Listener(Reporter):
        def started(self, trial, place=""):
            places.append(place)

    places = []
    run_trials([trial("fine")], RunOptions(folder), Slots(1), Listener(1, sys.stderr), work=faulty_trials.work)
    assert len(places) == 1 and re.fullmatch(r"process \d+", places[0])


@pytest.fixture
def run(density_run, write_run):
    return write_run(*density_run)


def test_status_shows_a_run(run, capsys):
    with claimed(run):
        write(run, digits="here")
        assert main(["status", str(run)]) == 0
    assert "  digits  running for 10 min (here)" in capsys.readouterr().out
