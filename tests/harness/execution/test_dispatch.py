"""How trials are sent to Dask workers, placed, taken back and stored; with a client that stands for a cluster."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.core.errors import SuiteError, UserError
from harness.core.records import blank_record, read_record, write_record
from harness.core.run_options import RunOptions
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.execution.dask.job import Job, files_of, store
from harness.execution.dask.worker import environment
from harness.execution.executor import Following
from harness.execution.executors import dask as executor
from harness.execution.executors.dask import Dask, scheduler_of
from harness.execution.progress import make_reporter
from harness.kinds.density.trial import DensityTrial
from harness.kinds.parameters.trial import ParametersTrial
from harness.kinds.runtime.trial import RuntimeTrial
from harness.planning.cluster import Cluster
from harness.planning.suite import read_suite

LAYER = LayerRef(row="one", layer="conv1x1")


def trial(label, **changes):
    fields = {"shape": (2, 4), "layer": LAYER, "flow": FlowSettings(), **changes}
    return ParametersTrial(suite="s", profile="smoke", label=label, **fields)


def timed(sweep):
    return RuntimeTrial(
        suite="s", profile="smoke", sweep=sweep, shape=(2, 4), batch=1, layers=(LAYER,), operations=("forward",)
    )


def job_of(one, out=Path("out")):
    return Job(version="1", trial=one, sources={}, run_options=RunOptions(out=out))


def test_values_of_cluster():
    assert scheduler_of(["address=tcp://a.b:8786", "data=/d"]).data == Path("/d")
    with pytest.raises(SuiteError) as caught:
        scheduler_of(["address=a.b:8786", "partition=gpu", "data"])
    for text in (
        "address: 'a.b:8786' is not the address of a scheduler",
        "unknown key 'partition'",
        "data: not of the form",
    ):
        assert text in str(caught.value)


def test_a_missing_library_and_a_missing_scheduler_are_one_message(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(executor, "CONNECT_SECONDS", 0.3)
    elsewhere = Dask(None, Cluster(), ["address=tcp://127.0.0.1:9"])
    with pytest.raises(UserError, match=r"^--cluster address=tcp://127.0.0.1:9: no Dask scheduler answers there"):
        elsewhere.at_once([trial("a")])
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UserError, match=r"^--executor dask needs distributed: pip install 'invertbench\[dask\]'$"):
        elsewhere.at_once([trial("a")])


def test_no_other_executor_imports_distributed():
    code = (
        "import sys; from harness.execution.executor import every_executor; every_executor(); "
        "assert not {'distributed', 'dask', 'cloudpickle'} & set(sys.modules), 'imported'"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_third_party_files_below_the_working_directory_are_sent(tmp_path, monkeypatch):
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


def test_data_beside_the_suite_are_sent_if_they_are_a_small_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "walk.csv").write_text("a\n1\n")

    def on(file):
        return DensityTrial(
            suite="s",
            profile="smoke",
            data=DataRef(label="walk", name="csv", options={"file": file, "columns": ["a"]}),
            layer=LAYER,
            flow=FlowSettings(),
            training=TrainingSettings(),
            seed=0,
        )

    assert files_of(job_of(on("./in/walk.csv")), Path("out"))["here/in/walk.csv"] == b"a\n1\n"
    assert set(files_of(job_of(on("in/walk.csv")), Path("out"))) == {"job.json"}, "below the data root"
    with pytest.raises(UserError, match=r"walk: file: ./in: cannot be sent .* into the data root"):
        files_of(job_of(on("./in")), Path("out"))


def test_records_of_candidates_are_sent_with_the_trial_that_chooses(tmp_path):
    path = tmp_path / "tuned.yaml"
    path.write_text(
        "suite: tuned\nkind: density\ntitle: Tuned\nlayers: {conv1x1: {}}\n"
        "tuning: {candidates: 3, space: {training.learning_rate: {low: 1e-3, high: 1e-1, scale: log}}}\n"
        "profiles:\n  quick: {flow: {levels: 1, steps: 1, width: 8}, datasets: {digits: {}}}\n"
    )
    from harness.planning.settle import settle

    plan, _ = settle(read_suite(path), "quick", "cpu").plan({})
    *candidates, final = plan.trials
    for candidate in candidates[:2]:
        write_record(tmp_path / "records", blank_record(candidate, "error", "planted"))
    write_record(tmp_path / "records", blank_record(final, "error", "of an earlier run"))
    sent = {name for name in files_of(job_of(final), tmp_path) if name != "job.json"}
    assert sent == {f"run/records/{candidate.id}.json" for candidate in candidates[:2]}
    assert set(files_of(job_of(candidates[0]), tmp_path)) == {"job.json"}


def test_a_job_of_another_version_or_source_is_refused(tmp_path):
    files = files_of(job_of(trial("a")), tmp_path)
    (tmp_path / "job.json").write_bytes(files["job.json"])
    with pytest.raises(UserError, match="and 1 for the command; install the same version"):
        Job.load(tmp_path)
    content = json.loads(files["job.json"])
    (tmp_path / "job.json").write_text(json.dumps({"version": "2", "unknown": content}))
    with pytest.raises(UserError, match="and 2 for the command"):
        Job.load(tmp_path)
    job = job_of(trial("a")).model_copy(update={"sources": {"a.py": "1", "b.py": "2"}})
    job.check_sources({"b.py": "2", "a.py": "1"})
    with pytest.raises(UserError, match=r"the source there is not that of the command: a.py changed, c.py is new"):
        job.check_sources({"a.py": "0", "b.py": "2", "c.py": "1"})


def left_by(one, place):
    """Return the files that a trial leaves on a worker."""
    write_record(place / "records", blank_record(one, "error", "planted"))
    return {f"records/{one.id}.json": (place / "records" / f"{one.id}.json").read_bytes()}


def test_files_of_a_worker_are_stored_below_the_run_and_of_its_trial_alone(tmp_path):
    one, out = trial("a"), tmp_path / "out"
    files = left_by(one, tmp_path / "there")
    content = {**files, f"weights/{one.id}.pt": b"w", "records/other.json": b"x", "source/1.diff": b"d"}
    assert store(one, content, out).status == "error"
    stored = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert stored == {f"records/{one.id}.json", f"weights/{one.id}.pt", "source/1.diff"}
    for name in (f"../{one.id}.json", "source/../x", f"records/{one.id}./../../x", f"/{one.id}.x"):
        with pytest.raises(ValueError, match="is no name of a file"):
            store(one, files | {name: b""}, out)
    assert not (tmp_path / "x").exists()
    files[f"records/{one.id}.json"] = b"{}"
    with pytest.raises(UserError, match="not a readable record"):
        store(one, files, out)


def test_a_process_has_no_variables_of_the_nanny(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.setenv("PYTHONPATH", "/a")
    without, below = (environment(SimpleNamespace(nanny=nanny), "/b") for nanny in (None, "tcp://127.0.0.1:1"))
    assert without["MALLOC_TRIM_THRESHOLD_"] == "65536" and "MALLOC_TRIM_THRESHOLD_" not in below
    assert below["PYTHONPATH"] == f"/a{os.pathsep}/b"


class Stand:
    """Stand for the client of a cluster: a task ends shortly after it was submitted, or its worker does."""

    def __init__(self, place, **hosts):
        from distributed import CancelledError

        self.place, self.status, self.scheduler, self.cancelled = place, "running", None, CancelledError
        self.workers = {
            address: {"host": host, "nthreads": threads, "status": "running"}
            for address, (host, threads) in hosts.items()
        }
        self.deadly, self.faults, self.submitted, self.running = Counter(), {}, [], []
        self.most, self.together, self.handlers = 0, Counter(), {}

    def scheduler_info(self, n_workers):
        return {"workers": dict(self.workers)}

    def subscribe_topic(self, topic, handler):
        self.handlers[topic] = handler

    def unsubscribe_topic(self, topic):
        del self.handlers[topic]

    def submit(self, function, files, topic, path, *, key, workers, **options):
        one, [address] = Job.model_validate_json(files["job.json"]).trial, workers
        host = self.workers[address]["host"]
        self.submitted.append((one.id, address))
        self.running.append((one, host))
        self.most = max(self.most, len(self.running))
        if one.alone:
            self.together[one.id] = sum(there == host for _, there in self.running)
        future = Future(self, one, host, address)
        threading.Timer(0.05, future.end).start()
        return future


class Future:
    def __init__(self, cluster, one, host, address):
        self.cluster, self.one, self.host, self.address = cluster, one, host, address
        self.outcome = cluster.cancelled("")

    def add_done_callback(self, function):
        self.callback = function

    def cancel(self):
        pass

    def result(self):
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def end(self):
        cluster, one = self.cluster, self.one
        cluster.running.remove((one, self.host))
        if cluster.deadly[one.id]:
            cluster.deadly[one.id] -= 1
            del cluster.workers[self.address]
            cluster.handlers["all"]((0.0, {"action": "remove-worker", "worker": self.address}))
        else:
            fault = cluster.faults.get(one.id, ("", 0))
            files = left_by(one, cluster.place)
            self.outcome = {"files": files, "fault": fault[0], "code": fault[1], "lost": False}
        self.callback(self)


@pytest.fixture
def run(tmp_path, capfd):
    """Run trials on a stand-in; return the records by label of the trial, and what was printed."""
    pytest.importorskip("distributed")
    from harness.execution.dask.dispatch import Dispatch

    def run(cluster, trials, jobs=None, stop_at=None):
        following = Following(make_reporter, stop_at, lambda one: {"sources": {}})
        options = RunOptions(out=tmp_path / "out")
        with make_reporter(len(trials)) as reporter:
            Dispatch(cluster, options, following, reporter, jobs, None, None).run(trials)
        left = {path.stem: read_record(path) for path in (tmp_path / "out" / "records").glob("*.json")}
        return [left.get(one.id) for one in trials], "".join(capfd.readouterr())

    return run


def test_trials_share_workers_by_their_threads(run, tmp_path):
    cluster = Stand(tmp_path, a=("one", 2), b=("two", 4))
    trials = [trial(str(number), threads=2) for number in range(7)]
    assert all(run(cluster, trials)[0])
    assert cluster.most == 3 and {address for _, address in cluster.submitted} == {"a", "b"}
    assert [name for name, _ in cluster.submitted] == [one.id for one in trials]
    cluster = Stand(tmp_path, a=("one", 2), b=("two", 4))
    run(cluster, trials, jobs=2)
    assert cluster.most == 2


def test_a_trial_that_measures_time_has_its_machine_alone(run, tmp_path):
    cluster = Stand(tmp_path, a=("one", 2), b=("one", 2), c=("two", 1))
    trials = [timed("x"), trial("a"), timed("y"), trial("b"), timed("z")]
    assert all(run(cluster, trials)[0])
    assert set(cluster.together.values()) == {1} and len(cluster.together) == 3
    assert {name for name, _ in cluster.submitted[:2]} == {trials[1].id, trials[3].id}, "others come first"
    assert cluster.most == 2


def test_a_trial_has_a_second_try_elsewhere_and_no_third(run, tmp_path):
    trials = [trial("a"), trial("b")]
    cluster = Stand(tmp_path, a=("one", 1), b=("two", 1), c=("three", 1))
    cluster.deadly[trials[0].id] = 1
    (first, second), printed = run(cluster, trials)
    assert first.status == second.status == "error" and printed.count("it runs again") == 1
    cluster = Stand(tmp_path, a=("one", 1), b=("two", 1), c=("three", 1))
    cluster.deadly[trials[0].id] = 5
    (first, second), _ = run(cluster, trials)
    assert first.status == "killed" and "in each of 2 tries" in first.reason and second.status == "error"
    places = [address for name, address in cluster.submitted if name == trials[0].id]
    assert len(places) == len(set(places)) == 2


def test_a_worker_that_cannot_run_a_trial_ends_the_run_with_its_reason(run, tmp_path):
    trials = [trial("a"), trial("b")]
    cluster = Stand(tmp_path, a=("one", 1))
    cluster.faults[trials[1].id] = "no data", 3
    with pytest.raises(UserError, match=r"^worker a: no data$") as caught:
        run(cluster, trials)
    assert caught.value.exit_code == 3
    assert len(list((tmp_path / "out" / "records").glob("*.json"))) == 1, "the other trial keeps its record"


def test_tasks_that_the_scheduler_drops_interrupt_the_run(run, tmp_path):
    cluster = Stand(tmp_path, a=("one", 1))
    cluster.faults = None  # its tasks end without an outcome
    Future.end, end = lambda future: future.callback(future), Future.end
    try:
        with pytest.raises(UserError, match="has dropped this run") as caught:
            run(cluster, [trial("a")])
    finally:
        Future.end = end
    assert caught.value.exit_code == 130


def test_a_record_can_end_the_run(run, tmp_path):
    trials = [trial("a"), trial("b"), trial("c")]
    left, _ = run(Stand(tmp_path, a=("one", 1)), trials, stop_at=lambda record: True)
    assert [record is not None for record in left] == [True, False, False]
