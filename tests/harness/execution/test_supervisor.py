import io
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import faulty_trials
import pytest

from harness.core.errors import UserError
from harness.core.isolation.descendants import descendants
from harness.core.isolation.messages import Receiver
from harness.core.isolation.process import LONGEST_LOG, LONGEST_RUNNING_LOG, Child
from harness.core.records import blank_record, read_record, write_record
from harness.core.run_options import RunOptions
from harness.execution.local.process import progress_sender, read_progress
from harness.execution.local.slots import Slots
from harness.execution.local.supervisor import run_trials
from harness.execution.outcome import interrupted
from harness.execution.progress import FailedFast, Reporter, make_reporter
from harness.kinds.runtime.trial import RuntimeTrial

SOURCES = {"layers/one.py": "abc"}


class Listener(Reporter):
    """Keep all reports in order."""

    def __init__(self):
        super().__init__(0, sys.stderr)
        self.heard = []

    def started(self, trial, place=""):
        self.heard.append(("started", trial.id))

    def update(self, trial, fraction, text):
        self.heard.append(("update", trial.id, fraction, text))

    def finished(self, trial, record):
        self.heard.append(("finished", trial.id, record.status))


def run(out, *trials, slots=None, reporter=None, **limits):
    """Run faulty trials, one at a time unless `slots` says otherwise, and return their records."""
    options, reporter = RunOptions(out, **limits), reporter or Listener()
    about = {"provenance": lambda trial: {"sources": SOURCES}, "work": faulty_trials.work}
    run_trials(trials, options, slots or Slots(1), reporter, **about)
    return [read_record(out / "records" / f"{trial.id}.json") for trial in trials]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes():
    """Return (process, session, command line) of all that run."""
    running = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            running.append((int(path.name), os.getsid(int(path.name)), (path / "cmdline").read_bytes()))
    return running


def daemons(pid):
    """Return the processes that `start_daemon` has started in this process, and that have left its session."""
    mark = f"daemon of {pid}\0".encode()
    return [other for other, session, command in processes() if other == session and command.endswith(mark)]


def pids(out):
    """Return the processes of all trials that have begun."""
    return [int(text) for path in (out / "notes").glob("*.pid") if (text := path.read_text())]


EXPECTED = {
    "fine": ("ok", None),
    "leave_a_daemon": ("ok", None),
    "raise_error": ("error", "ValueError: levels = 9 is too many (faulty_trials.py:"),
    "diverge": ("diverged", "training loss is nan at step 7"),
    "unsupported": ("unsupported", "butterfly: D = 49 is odd"),
    "too_large": ("oom", "memory"),
    "kill": ("killed", "SIGKILL"),
    "segfault": ("killed", "SIGSEGV"),
    "leave": ("error", "exit code 3"),
    "leave_politely": ("error", "SystemExit: enough"),
    "not_a_number": ("error", "JSON"),
    "find_no_space_elsewhere": ("error", "OSError: [Errno 28] No space left on device: 'a cache of the layer'"),
    "open_no_files": ("error", "exit code 1 and left no record"),
    "write_no_bytes": ("error", "exit code 1 and left no record"),
    "print_much": ("error", "the process ended with exit code 3"),
    "fine again": ("ok", None),
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory, trial):
    """Run all faulty trials at once, with two trials that have no fault."""
    out = tmp_path_factory.mktemp("faulty")
    trials = {label: trial(label) for label in EXPECTED}
    # A record of an earlier run must not count as the outcome of this one.
    write_record(out / "records", faulty_trials.fine(trials["kill"]))
    listener = Listener()
    records = run(out, *trials.values(), slots=Slots(2, cores=2), reporter=listener)
    return out, trials, dict(zip(trials, records, strict=True)), listener


@pytest.mark.parametrize("label", EXPECTED)
def test_every_fault_is_a_record_with_its_reason(faulty, label):
    record = faulty[2][label]
    status, reason = EXPECTED[label]
    assert record.status == status
    assert record.reason is None if reason is None else reason in record.reason
    assert record.seconds >= 0
    assert record.trial == faulty[1][label].model_dump(mode="json")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_daemon_ends_with_the_trial_that_has_started_it(faulty, wait_for):
    out, trials, _, _ = faulty
    wait_for(lambda: not daemons(int((out / "notes" / f"{trials['leave_a_daemon'].id}.pid").read_text())), seconds=2)


def test_every_trial_is_reported_once(faulty):
    _, trials, records, listener = faulty
    for label, trial in trials.items():
        about = [entry for entry in listener.heard if entry[1] == trial.id]
        assert about[0][0] == "started"
        assert about[-1] == ("finished", trial.id, records[label].status)
        assert [entry[0] for entry in about].count("finished") == 1
    assert ("update", trials["fine"].id, 0.0, "fine") in listener.heard


def test_output_of_a_trial_is_in_its_log_and_its_last_lines_in_the_record(faulty):
    out, trials, records, _ = faulty
    assert "a word on standard output" in (out / "logs" / f"{trials['raise_error'].id}.log").read_text()
    assert records["leave"].notes["log"] == "leaving early"
    assert "Segmentation fault" in records["segfault"].notes["log"]
    assert "in segfault" in records["segfault"].notes["log"]
    assert "in raise_error" in records["raise_error"].notes["traceback"]
    content = (out / "logs" / f"{trials['print_much'].id}.log").read_bytes()
    assert len(content) == LONGEST_LOG and content.endswith(b"xxx\nthe last line\n")
    assert records["print_much"].notes["log"].endswith("the last line")


def test_a_log_that_grows_without_end_is_cut_while_its_process_runs(tmp_path):
    log = tmp_path / "a.log"
    for size, kept in ((LONGEST_RUNNING_LOG - 3, LONGEST_RUNNING_LOG), (LONGEST_RUNNING_LOG, LONGEST_LOG)):
        with log.open("wb") as file:
            file.seek(size)
            file.write(b"end")
        Child(None, None, log).limit_log()
        assert log.stat().st_size == kept and log.read_bytes().endswith(b"end")


def test_records_have_their_provenance_and_name_no_machine(faulty):
    assert faulty[2]["fine"].notes["garbage"] == "True True", "its own is collected, that of the server is frozen"
    environment = faulty[2]["fine"].environment
    assert environment["versions"]["torch"] and environment["cpu"] and environment["threads"] == 1
    assert environment["sources"] == faulty[2]["kill"].environment["sources"] == SOURCES
    text = json.dumps(environment)
    assert os.uname().nodename not in text.split() and str(Path.home()) + "/" not in text


def test_runtime_trials_run_alone_and_last(tmp_path, trial, timed):
    trials = [timed("sleep a"), trial("sleep a"), timed("sleep b"), trial("sleep b"), trial("sleep c", threads=2)]
    *_, last = run(tmp_path, *trials, slots=Slots(3, cores=4))
    spans = {one.id: json.loads((tmp_path / "notes" / f"{one.id}.json").read_text()) for one in trials}
    for one in trials:
        overlaps = [
            other.id
            for other in trials
            if other is not one and spans[other.id][0] < spans[one.id][1] and spans[one.id][0] < spans[other.id][1]
        ]
        if isinstance(one, RuntimeTrial):
            assert not overlaps
            assert spans[one.id][0] > max(spans[other.id][1] for other in trials if not isinstance(other, RuntimeTrial))
        else:
            assert overlaps, "trials of other kinds run in parallel"
    assert last.notes["threads"] == "2"


@pytest.mark.system
def test_interrupt_ends_running_trials_and_keeps_finished_ones(tmp_path, trial, wait_for):
    trials = [trial("fine"), trial("sleep_long"), trial("sleep_long too"), trial("never started")]

    class Interrupting(Listener):
        def update(self, trial, fraction, text):
            if len(pids(tmp_path)) == 3:
                os.kill(os.getpid(), signal.SIGINT)

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, *trials, slots=Slots(2, cores=2), reporter=Interrupting())
    assert time.monotonic() - begin < 20
    assert [path.stem for path in (tmp_path / "records").glob("*.json")] == [trials[0].id]
    assert len(pids(tmp_path)) == 3
    wait_for(lambda: not any(map(alive, pids(tmp_path))), seconds=2)


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_process_survives_a_killed_supervisor(tmp_path, trial, wait_for):
    trials = [trial(label).model_dump_json() for label in ("sleep_long", "hang")]
    command = [sys.executable, faulty_trials.__file__, str(tmp_path), *trials]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, env=environment, start_new_session=True) as supervisor:
        wait_for(lambda: len(pids(tmp_path)) == 2, seconds=60)
        running = pids(tmp_path)
        children = wait_for(lambda: [child for pid in running for child in descendants(pid)])
        [daemon] = wait_for(lambda: [daemon for pid in running for daemon in daemons(pid)])
        os.killpg(supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not any(map(alive, [*running, *children, daemon])), seconds=3)


@pytest.fixture
def warm(tmp_path, trial):
    """Wait until the fork server has done its imports."""
    run(tmp_path / "warm", trial("fine"))


@pytest.mark.system
@pytest.mark.parametrize("label", ["hang", "sleep_long"])
def test_a_timeout_ends_the_whole_group_in_time(warm, tmp_path, label, trial):
    begin = time.monotonic()
    [record] = run(tmp_path, trial(label), timeout=1.5)
    assert time.monotonic() - begin < 1.5 + 2
    assert record.status == "timeout" and record.reason == "it ran for longer than 1.5 s, its timeout"
    assert record.notes["progress"] == f"last progress: {label}"
    [pid] = pids(tmp_path)
    assert not [process for process, session, _ in processes() if session == pid and alive(process)]
    assert not daemons(pid)


WRITES = {
    "write part": "the beginning of a message and no end",
    "write garbage": r"b'\x1b[2J\xff\x00 no message', which is not a message",
    "write types": "which is not a progress message",
    "write pickle": "which is not a message",
    "write_100_megabytes": "more than 32768 bytes without the end of a message",
}


@pytest.mark.system
def test_bytes_that_a_trial_writes_into_its_pipes_end_only_that_trial(warm, tmp_path, monkeypatch, trial):
    """Supervisor, fork server and resource tracker are unaffected."""
    monkeypatch.chdir(tmp_path)
    trials = [trial(label) for label in ("sleep", *WRITES, "write_four_bytes_and_hang", "fine")]
    begin = time.monotonic()
    first, *records, hung, last = run(tmp_path, *trials, slots=Slots(3, cores=3), timeout=5)
    assert time.monotonic() - begin < 30
    assert first.status == last.status == "ok" and hung.status == "timeout"
    for record, reason in zip(records, WRITES.values(), strict=True):
        assert (record.status, record.rows) == ("error", [])
        assert record.reason.startswith("it was ended because it wrote ") and reason in record.reason
    assert not Path("unpickled").exists()


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("label", ["take_memory", "take_memory_in_a_daemon"])
def test_a_trial_above_its_memory_limit_is_ended_with_a_reason(warm, tmp_path, label, trial):
    [record] = run(tmp_path, trial(label), memory=1 << 30, timeout=60)
    assert record.status == "oom"
    expected = r"its processes held .* of memory, and may hold 1.0 GiB \(memory\)"
    assert re.fullmatch(expected, record.reason), record.reason


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_allocation_that_cannot_fit_is_refused_at_once(tmp_path, trial):
    refused, fine = run(tmp_path, trial("ask_for_too_much"), trial("fine"), memory=1 << 30)
    assert refused.status == "oom" and "ask_for_too_much" in refused.notes["traceback"] and fine.status == "ok"


def test_a_trial_that_changes_the_working_directory_leaves_its_record(tmp_path, monkeypatch, trial):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text("from layers.conv1x1 import Conv1x1\nclass Theirs(Conv1x1): pass\n")
    [record] = run(Path("out"), trial("change_directory"))
    assert record.status == "ok"


def test_failing_fast_ends_the_run(tmp_path, trial):
    trials = [trial("fine"), trial("raise_error"), trial("sleep_long"), trial("never started")]
    reporter = Reporter(4, sys.stderr, fail_fast=True)
    with pytest.raises(FailedFast):
        run(tmp_path, *trials, slots=Slots(2, cores=2), reporter=reporter)
    left = {path.stem for path in (tmp_path / "records").glob("*.json")}
    assert trials[1].id in left <= {trials[0].id, trials[1].id}, "a trial that --fail-fast ended has no record"


def test_no_space_left_for_a_record_is_no_result(tmp_path, trial):
    trials = [trial("fine"), trial("fill_the_disk_at_the_record"), trial("never started")]
    with pytest.raises(UserError, match=r"cannot be written: No space left on device; make room there"):
        run(tmp_path, *trials)
    assert [path.name for path in (tmp_path / "records").iterdir()] == [f"{trials[0].id}.json"], "no incomplete file"


def test_a_closed_pipe_is_no_error_of_the_trial():
    """A killed supervisor must not make the trial write an error record before it ends."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    progress, messages = progress_sender(sender), Receiver(receiver)
    progress(0.1, "heard")
    assert messages.receive() == [{"fraction": 0.1, "text": "heard"}]
    messages.connection.close()
    time.sleep(0.11)
    progress(0.2, "not heard")


@pytest.mark.system
@pytest.mark.timeout(60)
@pytest.mark.skipif(sys.platform != "linux", reason="finds the fork server in /proc")
def test_a_stopped_fork_server_holds_up_no_trial(warm, tmp_path, trial):
    trials = [trial(label) for label in ("stop_the_server", "stop_the_server_and_hang", "fine")]
    assert [record.status for record in run(tmp_path, *trials, timeout=3)] == ["ok", "timeout", "ok"]


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="finds the fork server in /proc")
def test_the_end_of_the_fork_server_is_no_fault_of_a_trial(tmp_path, trial):
    """The trials of a killed fork server end with it and run again; the next trial gets a new server."""

    class Shooting(Listener):
        def update(self, trial, fraction, text):
            if trial.label == "sleep_long":
                [pid] = pids(tmp_path)
                os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)

    cut, fine = run(tmp_path, trial("sleep_long"), trial("fine"), reporter=Shooting())
    assert cut.status == "killed" and interrupted(cut) and fine.status == "ok"


def test_an_older_record_stays_until_the_trial_leaves_another(tmp_path, trial):
    running = trial("sleep_long")
    old = blank_record(running, "ok", None)
    write_record(tmp_path / "records", old)

    class Interrupting(Listener):
        def update(self, trial, fraction, text):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, running, reporter=Interrupting())
    assert read_record(tmp_path / "records" / f"{running.id}.json") == old


def test_signals_from_outside_count_as_interruptions(faulty):
    assert interrupted(faulty[2]["kill"]) and faulty[2]["kill"].notes["signal"] == "SIGKILL"
    assert not interrupted(faulty[2]["segfault"]) and faulty[2]["segfault"].notes["signal"] == "SIGSEGV"
    assert not interrupted(faulty[2]["raise_error"])


def test_each_gpu_is_leased_to_one_trial(tmp_path, trial):
    """Check CUDA_VISIBLE_DEVICES alone, which needs no GPU."""
    trials = [trial(f"visible_gpus {number}") for number in range(4)]

    class Pretend(Slots):
        def lease(self, trial):
            return super().lease(trial.model_copy(update={"device": "cuda"}))

    records = run(tmp_path, *trials, slots=Pretend(cores=4, gpus=("5", "GPU-7")))
    assert {record.notes["gpus"] for record in records} == {"5", "GPU-7"}


def test_plain_lines_report_the_outcome_of_each_trial(faulty, capsys):
    _, trials, records, _ = faulty
    with make_reporter(2, stream=sys.stderr) as reporter:
        reporter.started(trials["fine"])
        reporter.finished(trials["fine"], records["fine"])
        reporter.finished(trials["kill"], records["kill"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("[1/2] fine-one-w64: ok 3 parameters in ")
    assert lines[1].startswith("[2/2] kill-one-w64: killed: the process was ended by SIGKILL")


def test_the_live_display_shows_progress_and_leaves_a_line_per_trial(faulty):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    _, trials, records, _ = faulty
    screen = Terminal()
    odd = trials["fine"].model_copy(update={"label": "[bold]odd[/x]"})
    with make_reporter(2, stream=screen) as reporter:
        reporter.update(odd, 0.5, "step 1/2 [red]")
        time.sleep(0.2)  # it is painted ten times a second
        reporter.finished(odd, records["fine"])
    assert "[1/2] [bold]odd[/x]-one-w64: ok" in screen.getvalue()
    assert "step 1/2 [red]" in screen.getvalue() and "0 of 2 done" in screen.getvalue()
    assert read_progress({"fraction": float("nan"), "text": "odd"}) == (0.0, "odd")


SERVED = """
import sys
from harness.execution.local.process import start_trial_server

def say():
    slow = ("torch", "harness.execution.trial", "harness.kinds.density.run", "harness.kinds.runtime.run")
    slow += ("sklearn.datasets", "torch._dynamo", "sympy", "torchvision", "pooch", "wfdb", "matplotlib")
    print([name for name in slow if name in sys.modules])

if __name__ == "__main__":
    kind, *datasets = sys.argv[1:]
    process = start_trial_server([kind], datasets, kernels=kind == "runtime").Process(target=say)
    process.start()
    process.join()
    print([name for name in ("torch", "sklearn") if name in sys.modules])
"""


@pytest.mark.system
@pytest.mark.parametrize(
    ("kind", "datasets", "imported"),
    [
        ("parameters", [], []),
        ("density", ["wfdb", "nothing"], ["harness.kinds.density.run", "torch._dynamo", "sympy", "wfdb"]),
    ],
)
def test_the_fork_server_imports_only_the_needs_of_the_trials(tmp_path, kind, datasets, imported):
    (tmp_path / "main.py").write_text(SERVED)
    command = [sys.executable, str(tmp_path / "main.py"), kind, *datasets]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{['torch', 'harness.execution.trial', *imported]}\n[]\n"
