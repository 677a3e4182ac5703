"""How trials are sent to Dask workers, placed, taken back and stored; with a client that stands for a cluster."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from toys import density_trial

from harness.core.errors import UserError
from harness.core.records import blank_record, read_record, write_record
from harness.core.run_options import RunOptions
from harness.core.settings import LayerRef
from harness.execution.dask.job import Job, files_of, packed, store, unpacked
from harness.execution.dask.worker import failed
from harness.execution.executor import Following
from harness.execution.executors.dask import Dask
from harness.execution.progress import FailedFast, make_reporter
from harness.kinds.density.trial import Tuning


def job_of(one, out=Path("out")):
    return Job(trial=one, sources={}, run_options=RunOptions(out=out))


def answer_all(listener, answer):
    """Accept connections, and send each the answer."""
    held = []
    with contextlib.suppress(OSError):
        while True:
            held.append(listener.accept()[0])
            held[-1].sendall(answer)


ADDRESSES = ("tcp://192.0.2.1:99999", "ws://127.0.0.1:9", "tls://127.0.0.1:9")
ANSWERS = (None, b"", b"HTTP/1.0 400 Bad request\r\n\r\n")


@pytest.fixture(params=[*ADDRESSES, *ANSWERS])
def address(request):
    """Return an address without a scheduler: a bad one, or one of a port that is closed or answers something else."""
    if request.param in ADDRESSES:
        yield request.param
        return
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param is not None:
            listener.listen(50)
            threading.Thread(target=answer_all, args=(listener, request.param), daemon=True).start()
        yield "tcp://{}:{}".format(*listener.getsockname())
        listener.close()


def test_an_address_without_a_scheduler_is_one_message(monkeypatch, address, trial):
    pytest.importorskip("distributed")
    from harness.execution.dask import connection

    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    elsewhere = Dask(None, {}, [f"address={address}"])
    with pytest.raises(UserError, match=rf"^--cluster address={address}: no Dask scheduler answers there"):
        elsewhere.at_once([trial("a")])


def test_a_missing_library_is_one_message(monkeypatch, trial):
    monkeypatch.delitem(sys.modules, "harness.execution.dask.connection", raising=False)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UserError, match=r"^--executor dask needs distributed: pip install 'invertbench\[dask\]'$"):
        Dask(None, {}, ["address=tcp://127.0.0.1:9"]).at_once([trial("a")])


class Bomb:
    def __reduce__(self):
        return exec, ("import sys; sys.exploded = True",)


class Sent(Exception):
    """An exception whose class does not exist where it arrives."""


def test_nothing_but_bytes_and_common_exceptions_is_unpickled():
    pytest.importorskip("distributed")
    from distributed.core import clean_exception, error_message
    from distributed.protocol import dumps, loads, serialize, to_serialize
    from distributed.protocol.serialize import ToPickle, deserialize

    from harness.execution.dask.connection import Foreign, nothing_unpickled

    messages = [dumps({"x": wrapped}) for wrapped in (to_serialize(Bomb()), ToPickle(Bomb()), to_serialize(b"bytes"))]
    with nothing_unpickled():
        values = [loads(message)["x"] for message in messages]
        assert isinstance(values[0], Foreign) and isinstance(values[1], Foreign) and values[2] == b"bytes"
        assert isinstance(deserialize(*serialize(Bomb(), serializers=["pickle"])), Foreign)
        for sent, cls in ((OSError(28, "No space"), OSError), (Sent("its reason"), Foreign)):
            _, error, _ = clean_exception(loads(dumps(error_message(sent)))["exception"])
            assert isinstance(error, cls) and error.args == sent.args
    assert not hasattr(sys, "exploded"), "ran code"
    loads(messages[0])
    assert sys.__dict__.pop("exploded"), "the bomb is one"


def test_no_other_executor_imports_distributed():
    code = (
        "import sys; from harness.execution.executor import every_executor; every_executor(); "
        "assert not {'distributed', 'dask', 'cloudpickle'} & set(sys.modules), 'imported'"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_third_party_files_below_the_working_directory_are_sent(tmp_path, monkeypatch, trial):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for place in (inside / "mine", outside):
        place.mkdir(parents=True)
        (place / "held.py").write_text("import beside\n")
        (place / "beside.py").write_text("")
    monkeypatch.chdir(inside)
    files = files_of(job_of(trial("a", layer=LayerRef(row="one", layer="mine/held.py:Held"))), Path("out"))
    assert set(files) == {"job.json", "here/mine/held.py", "here/mine/beside.py"}
    with pytest.raises(UserError, match=r"held.py:Held: a worker receives .* in the working directory or below it"):
        files_of(job_of(trial("a", layer=LayerRef(row="one", layer=f"{outside}/held.py:Held"))), Path("out"))


def test_records_of_candidates_are_sent_with_the_trial_that_chooses(tmp_path):
    points = tuple((("training.learning_rate", rate),) for rate in (0.001, 0.01, 0.1))
    final = density_trial(data="digits", tuning=Tuning(seed=100, candidates=points))
    candidates = final.candidates
    for candidate in candidates[:2]:
        write_record(tmp_path / "records", blank_record(candidate, "error", "planted"))
    write_record(tmp_path / "records", blank_record(final, "error", "of an earlier run"))
    sent = {name for name in files_of(job_of(final), tmp_path) if name != "job.json"}
    assert sent == {f"run/records/{candidate.id}.json" for candidate in candidates[:2]}
    assert set(files_of(job_of(candidates[0]), tmp_path)) == {"job.json"}


def left_by(one, place):
    """Return what a worker returns for a trial that has left its record."""
    write_record(place / "records", blank_record(one, "error", "planted"))
    return packed(one, place)


def test_files_of_a_trial_come_back_and_no_others(tmp_path, trial):
    one, there, out = trial("a"), tmp_path / "there", tmp_path / "out"
    names = [f"weights/{one.id}.pt", f"logs/{one.id}.log", "source/0123456789abcdef.diff"]
    for name in (*names, "records/other.json", f"records/{one.id}.json.tmp", "checkpoints/1.ckpt", "logs/other.log"):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_bytes(name.encode())
    head, files = unpacked(left_by(one, there))
    assert not head.fault and store(one, files, out).status == "error"
    stored = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert stored.keys() == {*names, f"records/{one.id}.json"} and stored[names[0]] == names[0].encode()


def test_what_is_no_record_of_the_trial_is_refused_and_not_stored(tmp_path, trial):
    one, other, out = trial("a"), trial("b"), tmp_path / "out"
    _, files = unpacked(left_by(one, tmp_path / "there"))
    (name, record), *_ = files.items()
    _, foreign = unpacked(left_by(other, tmp_path / "there"))
    arrays = record.replace(b'"arrays": null', f'"arrays": "{one.id}.{"0" * 64}.npz"'.encode())
    others = ("../a.json", f"logs/../{one.id}.log", f"{one.id}.log", "logs/a")
    for wrong, words in (
        ({}, "no record"),
        (foreign, "which is no file of this trial"),
        ({name: foreign[f"records/{other.id}.json"]}, "the record of"),
        ({name: b"{}"}, "missing"),
        ({name: record.replace(b'"format": 2', b'"format": 3')}, "format: the number 3 is not one of 2"),
        ({name: arrays}, "without its arrays"),
        (files | {f"logs/{one.id}.log": b"x" * ((1 << 24) + 1)}, "16,777,217 bytes"),
        *((files | {name: b""}, "no file of this trial") for name in others),
    ):
        with pytest.raises(ValueError, match=words):
            store(one, wrong, out)
    assert not out.exists()
    for content in (None, {}, b"", b"\x80\x04x\n", b"[]\n", b'{"files": {"a": 5}}\nabc', b'{"files": {"a": -1}}\n'):
        with pytest.raises(ValueError):
            unpacked(content)
    many = json.dumps({"files": {str(number): 0 for number in range(9)}}).encode() + b"\n"
    with pytest.raises(ValueError, match="files"):
        unpacked(many)


class Stand:
    """Stand for the client of a cluster: a task ends shortly after it was submitted, or its worker does."""

    def __init__(self, place, **threads):
        self.place, self.status, self.scheduler = place, "running", None
        self.workers = {name: {"nthreads": number, "status": "running"} for name, number in threads.items()}
        self.deadly, self.answers, self.submitted, self.running = Counter(), {}, [], []
        self.most, self.together = 0, Counter()

    def scheduler_info(self, n_workers):
        return {"workers": dict(self.workers)}

    def submit(self, function, files, *, key, workers, **options):
        one, [address] = Job.model_validate_json(files["job.json"]).trial, workers
        self.submitted.append((one.id, address))
        self.running.append(one)
        self.most = max(self.most, len(self.running))
        if one.alone:
            self.together[one.id] = len(self.running)
        future = Future(self, one, address)
        threading.Timer(0.05, future.end).start()
        return future


class Future:
    def __init__(self, cluster, one, address):
        self.cluster, self.one, self.address, self.outcome = cluster, one, address, None

    def done(self):
        return self.outcome is not None

    def cancel(self):
        pass

    def result(self, timeout):
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def end(self):
        cluster, one = self.cluster, self.one
        cluster.running.remove(one)
        if cluster.deadly[one.id]:
            cluster.deadly[one.id] -= 1
            del cluster.workers[self.address]
        else:
            self.outcome = cluster.answers.get(self.address) or left_by(one, cluster.place)


@pytest.fixture
def run(tmp_path, capfd):
    """Run trials on a stand-in; return the records by label of the trial, and what was printed."""
    pytest.importorskip("distributed")
    from harness.execution.dask.dispatch import Dispatch

    def run(cluster, trials, jobs=None, fails=None):
        following = Following(make_reporter, lambda one: {"sources": {}})
        options = RunOptions(out=tmp_path / "out")
        reporter = make_reporter(len(trials), fail_fast=fails is FailedFast)
        with reporter, pytest.raises(fails) if fails else contextlib.nullcontext():
            Dispatch(cluster, options, following, reporter, jobs).run(trials)
        left = {path.stem: read_record(path) for path in (tmp_path / "out" / "records").glob("*.json")}
        return [left.get(one.id) for one in trials], "".join(capfd.readouterr())

    return run


def test_trials_share_workers_by_their_threads(run, tmp_path, trial):
    cluster = Stand(tmp_path, a=2, b=4)
    trials = [trial(str(number), threads=2) for number in range(7)]
    assert all(run(cluster, trials)[0])
    assert cluster.most == 3 and {address for _, address in cluster.submitted} == {"a", "b"}
    assert [name for name, _ in cluster.submitted] == [one.id for one in trials]
    cluster = Stand(tmp_path, a=2, b=4)
    run(cluster, trials, jobs=2)
    assert cluster.most == 2


def test_trials_that_measure_times_run_one_at_a_time(run, tmp_path, trial, timed):
    cluster = Stand(tmp_path, a=2, b=2, c=1)
    trials = [timed("x"), trial("a"), timed("y"), trial("b"), timed("z")]
    assert all(run(cluster, trials)[0])
    assert set(cluster.together.values()) == {1} and len(cluster.together) == 3
    assert {name for name, _ in cluster.submitted[:2]} == {trials[1].id, trials[3].id}, "others come first"
    assert cluster.most == 2


def test_a_trial_has_a_second_try_elsewhere_and_no_third(run, tmp_path, trial):
    trials = [trial("a"), trial("b")]
    cluster = Stand(tmp_path, a=1, b=1, c=1)
    cluster.deadly[trials[0].id] = 1
    (first, second), printed = run(cluster, trials)
    assert first.status == second.status == "error" and printed.count("it runs again") == 1
    cluster = Stand(tmp_path, a=1, b=1, c=1)
    cluster.deadly[trials[0].id] = 5
    (first, second), _ = run(cluster, trials)
    assert first.status == "killed" and "in each of 2 tries" in first.reason and second.status == "error"
    places = [address for name, address in cluster.submitted if name == trials[0].id]
    assert len(places) == len(set(places)) == 2


@pytest.mark.parametrize("answer", [OSError(28, "No space left"), b"nonsense", failed("\x1b[31mno data", code=3)])
def test_a_worker_that_cannot_run_trials_is_named_and_left_out(run, tmp_path, answer, trial):
    trials = [trial(str(number)) for number in range(6)]
    cluster = Stand(tmp_path, a=2, b=2)
    cluster.answers["a"] = answer
    left, printed = run(cluster, trials)
    assert all(left) and printed.count("worker a gets no more trials: ") == 1 and "\x1b" not in printed
    assert [address for _, address in cluster.submitted].count("a") <= 2, "no more than it had before its first answer"


@pytest.mark.parametrize(("answer", "code"), [(failed("no data", code=3), 3), (failed("another version"), 2)])
def test_without_a_good_worker_the_run_ends_with_all_reasons(run, tmp_path, answer, code, trial):
    cluster = Stand(tmp_path, a=1, b=1)
    cluster.answers = {"a": failed("no data", code=3), "b": answer}
    reasons = r"^no worker can run the trials\nworker a: no data\nworker b: "
    with pytest.raises(UserError, match=reasons) as caught:
        run(cluster, [trial("a"), trial("b")])
    assert caught.value.exit_code == code


def test_tasks_that_the_scheduler_drops_interrupt_the_run(run, tmp_path, trial):
    from distributed import CancelledError

    cluster = Stand(tmp_path, a=1)
    cluster.answers["a"] = CancelledError("")
    with pytest.raises(UserError, match="has dropped this run") as caught:
        run(cluster, [trial("a")])
    assert caught.value.exit_code == 130


def test_a_record_can_end_the_run(run, tmp_path, trial):
    trials = [trial("a"), trial("b"), trial("c")]
    left, _ = run(Stand(tmp_path, a=1), trials, fails=FailedFast)
    assert [record is not None for record in left] == [True, False, False]
