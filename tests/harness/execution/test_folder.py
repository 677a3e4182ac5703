"""A run locks its folder until it ends, even if it is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.execution.folder import claimed, make_folder, remove_leftovers

PROJECT = Path(__file__).resolve().parents[3]
HOLD = """
import sys
from pathlib import Path
from harness.execution.folder import claimed
with claimed(Path(sys.argv[1]), host=len(sys.argv) > 2):
    print("locked", flush=True)
    sys.stdin.read()
"""


def holder(folder, *more):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), *more],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "locked\n"
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_a_second_run_is_refused_and_names_the_first_while_that_runs(tmp_path):
    folder = make_folder(tmp_path / "suite")
    with holder(folder) as first:
        with pytest.raises(
            UserError, match=rf"another run uses this folder \(process {first.pid}, since 20\S+\); wait"
        ):
            claimed(folder).__enter__()
        first.send_signal(signal.SIGKILL)
        first.wait()
    with claimed(folder):  # a killed process leaves the lock file, but no lock
        pass
    with holder(folder, "host") as first:
        with pytest.raises(UserError, match=rf"\(process {first.pid} on {os.uname().nodename}, since"):
            claimed(folder).__enter__()
        first.stdin.close()
    with claimed(folder):
        pass
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "logs", "records"]


def test_only_incomplete_files_are_removed(tmp_path):
    kept = ["records/a.json", "records/.b.json.tmp.json", "weights/a.pt", "checkpoints/a/000000001.ckpt", "a.tmp"]
    gone = ["records/.a.json.x.tmp", ".plan.json.y.tmp", "checkpoints/a/.000000002.ckpt.z.tmp", "weights/.a.pt.q.tmp"]
    for name in kept + gone:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path)
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert left == sorted(kept)


def test_a_folder_that_cannot_be_created_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another --out"):
        make_folder(tmp_path / "file" / "suite")
