"""Records and checkpoints that the process of a trial leaves, and records of trials whose process left none."""

import errno
import re

import pytest
from toys import density_trial

from harness.core.errors import Diverged
from harness.core.files import Unwritten, write_atomically
from harness.core.records import blank_record, read_record, write_record
from harness.core.run_options import RunOptions
from harness.core.settings import LayerRef
from harness.core.third_party import source_digest
from harness.execution.outcome import NO_RECORD, digest, end_of, interrupted, left_record, log_path, missing_record
from harness.execution.trial import execute

TRIAL = density_trial(data="digits", training={"steps": 2, "batch_size": 16, "evaluate_every": 1})
PROVENANCE = {"git": {"commit": "c"}, "sources": {"flows/glow.py": "aaa"}}


class NumberOfState:
    def state_dict(self):
        return {"number": 3}

    def load_state_dict(self, state):
        self.number = state["number"]


def run_with(out, ending):
    """Execute a trial that leaves a checkpoint and then calls `ending`."""

    def run(trial, root, out, progress, checkpoints):
        checkpoints.save(1, {"number": NumberOfState()})
        return ending(trial)

    return execute(TRIAL, RunOptions(out, checkpoint=0), PROVENANCE, lambda *_: None, run)


def raising(error):
    def ending(trial):
        raise error

    return ending


@pytest.mark.parametrize(
    ("ending", "status", "kept"),
    [
        (lambda trial: blank_record(trial, "ok", None), "ok", False),
        (raising(Diverged("at step 1")), "diverged", False),
        (raising(ValueError("odd")), "error", True),
        (raising(MemoryError()), "oom", True),
        (raising(RuntimeError("std::bad_alloc")), "oom", True),
        (raising(OSError(errno.EIO, "no disk")), "error", True),
    ],
)
def test_checkpoints_stay_while_they_can_be_used(tmp_path, ending, status, kept):
    record = run_with(tmp_path, ending)
    assert record.status == status
    assert read_record(tmp_path / "records" / f"{TRIAL.id}.json") == record
    assert bool(list(tmp_path.glob("checkpoints/*/*.ckpt"))) == kept
    assert record.environment["git"] == PROVENANCE["git"] and record.environment["sources"] == PROVENANCE["sources"]
    assert record.environment["versions"]["torch"]


def test_what_prevents_writing_is_not_a_result_of_a_trial(tmp_path, monkeypatch):
    def run(trial, root, out, progress, checkpoints):
        checkpoints.save(1, {"number": NumberOfState()})
        monkeypatch.setattr("os.fsync", raising(OSError(errno.ENOSPC, "full")))
        write_atomically(tmp_path / "weights" / "any.pt", b"")

    with pytest.raises(Unwritten):
        execute(TRIAL, RunOptions(tmp_path), PROVENANCE, lambda *_: None, run)
    assert not (tmp_path / "records").exists() and list(tmp_path.glob("checkpoints/*/*.ckpt"))


def test_a_record_names_the_step_from_which_training_resumed(tmp_path):
    run_with(tmp_path, raising(ValueError("odd")))

    def run(trial, root, out, progress, checkpoints):
        checkpoints.restore({"number": NumberOfState()})
        return blank_record(trial, "ok", None)

    changed = PROVENANCE | {"sources": {"flows/glow.py": "bbb"}}
    record = execute(TRIAL, RunOptions(tmp_path), changed, lambda *_: None, run)
    assert record.notes["resumed"].startswith("training was interrupted once, and resumed from step 1 of 2")
    assert record.environment["sources"] == PROVENANCE["sources"], "the source of the first steps: it is stale"
    assert record.seconds > 0


def test_a_layer_file_that_changed_since_the_plan_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from layers.conv1x1 import Conv1x1\n\n\nclass Mine(Conv1x1):\n    pass\n")
    ref = LayerRef(row="mine", layer="mine.py:Mine", source=source_digest(tmp_path / "mine.py"))
    trial = density_trial(ref, "digits")
    run = (trial, RunOptions(tmp_path), PROVENANCE, lambda *_: None, lambda trial, *_: blank_record(trial, "ok", None))
    assert execute(*run).status == "ok"
    with (tmp_path / "mine.py").open("a") as file:
        file.write("ODD = 1\n")
    record = execute(*run)
    assert record.status == "error" and "mine.py has changed since the run was planned" in record.reason


@pytest.mark.parametrize(
    ("code", "status", "words", "again"),
    [
        (-9, "killed", "SIGKILL .*out of memory: run with fewer --jobs", True),
        (-11, "killed", "SIGSEGV", False),
        (-15, "killed", "SIGTERM", True),
        (-50, "killed", "signal 50", False),
        (255, "killed", "together with the server", True),
        (3, "error", "exit code 3 and left no record", False),
    ],
)
def test_status_and_reason_follow_from_how_the_process_ended(tmp_path, code, status, words, again, trial):
    record = missing_record(trial(), tmp_path, end_of(code, NO_RECORD), 1.0, "", {"git": None})
    assert record.status == status and record.environment == {"git": None}
    assert re.search(words, record.reason), record.reason
    assert interrupted(record) == again, "whether a run without options repeats the trial"


def test_a_record_has_the_last_lines_of_a_long_log(tmp_path, trial):
    path = log_path(tmp_path, trial())
    path.parent.mkdir()
    path.write_bytes(b"x" * (1 << 20) + b"\n\xff\xfe\n" + b"".join(b"line %d\n" % n for n in range(100)))
    record = missing_record(trial(), tmp_path, end_of(1, NO_RECORD), 1.0, "step 3/9", {})
    lines = record.notes["log"].splitlines()
    assert lines[0] == "line 40" and lines[-1] == "line 99"
    assert record.notes["progress"] == "last progress: step 3/9"


def test_a_record_from_before_the_process_does_not_count(tmp_path, trial):
    path = write_record(tmp_path / "records", blank_record(trial(), "ok", None))
    before = digest(path)
    assert left_record(trial(), tmp_path, before) == (None, "left no record")
    write_record(tmp_path / "records", blank_record(trial(), "oom", "new"))
    assert left_record(trial(), tmp_path, before)[0].status == "oom"
    path.write_text("{")
    assert "not a readable record" in left_record(trial(), tmp_path, before)[1]
