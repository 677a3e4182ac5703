"""Records of trials whose process ended without writing one."""

import re

import pytest

from harness.core.records import blank_record, write_record
from harness.core.run_options import RunOptions
from harness.core.settings import FlowSettings, LayerRef
from harness.execution.outcome import Ending, digest, interrupted, left_record, log_path, missing_record
from harness.kinds.parameters.trial import ParametersTrial

TRIAL = ParametersTrial(
    suite="s",
    profile="smoke",
    label="l",
    shape=(2, 4),
    layer=LayerRef(row="one", layer="conv1x1"),
    flow=FlowSettings(),
)


@pytest.mark.parametrize(
    ("ending", "status", "words", "again"),
    [
        (Ending(-9, 1.0), "killed", "SIGKILL .*out of memory: run with fewer --jobs", True),
        (Ending(-9, 1.0, out_of_memory=True), "oom", "the system was out of memory", False),
        (Ending(-11, 1.0, out_of_memory=True), "killed", "SIGSEGV", False),
        (Ending(-15, 1.0), "killed", "SIGTERM", True),
        (Ending(-50, 1.0), "killed", "signal 50", False),
        (Ending(255, 1.0), "killed", "together with the server", True),
        (Ending(3, 1.0), "error", "exit code 3 and left no record", False),
        (Ending(-9, 1.0, limit="timeout"), "timeout", "longer than 30 min", False),
        (Ending(-9, 1.0, limit="oom", held=5 << 30), "oom", "held 5.0 GiB of memory, and may hold 4.0 GiB", False),
    ],
)
def test_status_and_reason_follow_from_how_the_process_ended(tmp_path, ending, status, words, again):
    run_options = RunOptions(tmp_path, timeout=1800, memory=4 << 30)
    record = missing_record(TRIAL, run_options, ending, "left no record", {"git": None})
    assert record.status == status and record.environment == {"git": None}
    assert re.search(words, record.reason), record.reason
    assert interrupted(record) == again, "whether a run without options repeats the trial"


def test_a_record_has_the_last_lines_of_a_long_log(tmp_path):
    path = log_path(tmp_path, TRIAL)
    path.parent.mkdir()
    path.write_bytes(b"x" * (1 << 20) + b"\n\xff\xfe\n" + b"".join(b"line %d\n" % n for n in range(100)))
    record = missing_record(TRIAL, RunOptions(tmp_path), Ending(1, 1.0, last_words="step 3/9"), "left no record", {})
    lines = record.notes["log"].splitlines()
    assert lines[0] == "line 40" and lines[-1] == "line 99"
    assert record.notes["progress"] == "last progress: step 3/9"


def test_a_record_from_before_the_process_does_not_count(tmp_path):
    path = write_record(tmp_path / "records", blank_record(TRIAL, "ok", None))
    before = digest(path)
    assert left_record(TRIAL, tmp_path, before) == (None, "left no record")
    write_record(tmp_path / "records", blank_record(TRIAL, "oom", "new"))
    assert left_record(TRIAL, tmp_path, before)[0].status == "oom"
    path.write_text("{")
    assert "not a readable record" in left_record(TRIAL, tmp_path, before)[1]
