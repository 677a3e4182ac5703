"""A run locks its folder until it ends, even if it is killed, and lists there the trials that run, for `status`."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.records import blank_record
from harness.execution import progress
from harness.execution.folder import (
    RUNNING,
    claimed,
    make_folder,
    remove_leftovers,
    running_lines,
    working,
    write_running,
)
from harness.execution.progress import Reporter, ReportProgress

PROJECT = Path(__file__).resolve().parents[3]
HOLD = """
import sys, time
from pathlib import Path
from harness.execution.folder import claimed, write_running
with claimed(Path(sys.argv[1])):
    write_running(Path(sys.argv[1]), {"digits": ("here", time.time())})
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "suite")


def write(folder, **places):
    write_running(folder, {name: (place, time.time() - 600) for name, place in places.items()})


def test_a_second_run_is_refused_while_the_first_runs_and_a_killed_one_leaves_neither_lock_nor_list(folder):
    command = [sys.executable, "-c", HOLD, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(PROJECT)}, **pipes) as first:
        assert first.stdout.readline() == "locked\n" and len(running_lines(folder)) == 2
        with pytest.raises(UserError, match=r"another run uses this folder; wait"):
            claimed(folder).__enter__()
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert (folder / RUNNING).exists() and running_lines(folder) == []
    with claimed(folder):
        assert len(running_lines(folder)) == 1
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "logs", "records"]


def test_a_look_at_the_folder_refuses_no_run(folder):
    """`working` holds a shared lock for a moment, in which a run may begin."""
    with claimed(folder):
        assert working(folder)
    with (folder / ".lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        with claimed(folder):
            pass
    assert not working(folder)


def test_a_line_says_how_long_a_trial_runs_and_where(folder):
    assert running_lines(folder) == []
    with claimed(folder):
        assert running_lines(folder) == ["a run uses this folder: 0 of its trials run now"]
        write(folder, digits="process 4713", **{"new\x1b": "worker tcp://a:1"})
        heading, first, second = running_lines(folder)
        (folder / RUNNING).write_bytes(b"[{}]")
        assert len(running_lines(folder)) == 1, "a damaged list ends no status"
    assert heading.endswith(": 2 of its trials run now") and first == "  digits  running for 10 min (process 4713)"
    assert second == r"  new\x1b  running for 10 min (worker tcp://a:1)", "no escape sequence reaches a terminal"


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


def test_a_quiet_run_names_failures_alone(trial, capsys):
    one = trial("a")
    reporter = Reporter(2, sys.stderr, quiet=True)
    reporter.update(one, 0.5, "half")
    reporter.finished(one, blank_record(one, "ok", None))
    assert capsys.readouterr() == ("", "")
    reporter.finished(one, blank_record(one, "oom", "no memory left"))
    assert capsys.readouterr().err == f"[2/2] {one.slug}: oom: no memory left\n"


def test_only_incomplete_files_are_removed(tmp_path):
    kept = ["records/a.json", "records/.b.json.tmp.json", "weights/a.pt", "checkpoints/a/000000001.ckpt", "a.tmp"]
    cut = ["records/.a.json", ".plan.json", "checkpoints/a/.2.ckpt", "weights/.a.pt"]
    for name in kept + [f"{name}.0123abcd.tmp" for name in cut]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path)
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert left == sorted(kept)


def test_the_progress_of_a_report_has_a_line_after_every_period(monkeypatch, capsys):
    times = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: times[-1])
    shown = ReportProgress("mine")
    shown(0.1, "plan")
    times.append(times[-1] + progress.LINE_SECONDS)
    shown(0.15, "tables")
    shown(0.4, "figures, 1 of 13 files")
    assert capsys.readouterr() == ("", "report of mine, 15%: tables\n")
