"""Records of trials whose process ended without writing one."""

import re

import pytest

from harness.core.records import blank_record, write_record
from harness.execution.outcome import NO_RECORD, digest, end_of, interrupted, left_record, log_path, missing_record


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
