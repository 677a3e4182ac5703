"""States of trials submitted to a cluster, derived from files and from the output of squeue."""

import os
import subprocess
import time

import pytest

from harness.core.errors import DataError, UserError
from harness.core.records import blank_record, write_record
from harness.core.run_options import RunOptions
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.execution.data import check_prepared
from harness.execution.executor import attached_trials, executor_class
from harness.execution.outcome import SIGNAL, digest
from harness.execution.slurm.slurm_job import Heartbeat, wait_for_silence
from harness.execution.slurm.squeue import Job, parse
from harness.execution.slurm.submissions import (
    CANCELLED,
    Beat,
    Submission,
    Submissions,
    beat_path,
    check_in_shell,
    check_private,
    counted,
    fault_path,
    judge,
    lines,
    make_private,
    read_beat,
)
from harness.kinds.density.trial import DensityTrial
from harness.kinds.parameters.trial import ParametersTrial
from harness.planning.cluster import Cluster

LAYER = LayerRef(row="one", layer="conv1x1")
NAME = "invertbench-s-1"
RUNNING, PENDING = Job("RUNNING", "None"), Job("PENDING", "Resources")
ENDED = Job("TIMEOUT", "TimeLimit")


def trial(label):
    return ParametersTrial(suite="s", profile="smoke", label=label, shape=(2, 4), layer=LAYER, flow=FlowSettings())


def beat(job="7_0", submission=NAME, **changes):
    return Beat(submission=submission, job=job, text="step 5/40", **{"seconds": 10.0} | changes)


def queue(jobs):
    """Return a queue that reports these jobs for every name."""
    return lambda names: None if jobs is None else dict.fromkeys(names, jobs)


def cancelled(place):
    (place / CANCELLED).touch()


def submission(out, *jobs, name=NAME):
    before = {trial.id: old for job in jobs for trial in job if (old := digest(out / "records" / f"{trial.id}.json"))}
    submitted = Submission(
        name=name, jobs=jobs, before=before, run_options=RunOptions(out), cache=out / "cache", heartbeat=10.0
    )
    make_private(out / "slurm")
    submitted.save(out / "slurm" / name)
    (out / "slurm" / name).chmod(0o700)
    return out / "slurm" / name


@pytest.mark.parametrize(
    ("last", "age", "jobs", "fault", "state", "words", "active"),
    [
        (None, 0, {0: PENDING}, None, "waiting", "Resources", True),
        (None, 0, {None: RUNNING}, None, "waiting", "RUNNING", True),
        (None, 0, None, None, "waiting", "does not answer", True),
        (beat(), 12, {0: RUNNING}, None, "running", "step 5/40 (heartbeat 12 s ago)", True),
        (beat(node="n7"), 12, {0: RUNNING}, None, "running", "ago on n7)", True),
        (beat(), 12, None, None, "running", "step 5/40", True),
        (beat(), 41, {0: RUNNING}, None, "lost", "no heartbeat for 41 s; the queue still has its job", True),
        (beat(), 41, {0: PENDING}, None, "waiting", "Resources", True),  # requeued
        (beat(), 41, None, None, "lost", "does not answer", False),
        (beat(), 1, {0: ENDED}, None, "lost", "TIMEOUT (TimeLimit); it left no record", False),
        (beat(), 1, {1: RUNNING}, None, "lost", "its job has ended", False),
        (None, 0, {}, None, "lost", "its job has ended", False),
        (None, 0, {0: RUNNING}, "no data", "lost", "no data", False),
        (beat(), 1, {0: RUNNING}, "no data", "running", "step 5/40", True),  # started again
    ],
)
def test_the_state_follows_from_heartbeat_queue_and_fault(last, age, jobs, fault, state, words, active):
    judged = judge(last, age, 0, jobs, fault)
    assert (judged[0], judged[2]) == (state, active) and words in judged[1]


def test_a_trial_is_done_when_its_record_has_changed(tmp_path):
    submitted = trial("one")
    write_record(tmp_path / "records", blank_record(submitted, "error", "of an earlier run"))
    submission(tmp_path, (submitted,))
    assert Submissions(tmp_path, queue({0: RUNNING})).look()[submitted.id].state == "waiting"
    ended = blank_record(submitted, "killed", "ended by SIGTERM")
    ended.notes[SIGNAL] = "SIGTERM"
    write_record(tmp_path / "records", ended)
    assert Submissions(tmp_path, queue({0: ENDED})).look()[submitted.id].state == "lost", "it runs again"
    write_record(tmp_path / "records", blank_record(submitted, "error", "of this run"))
    looked = Submissions(tmp_path, queue({0: RUNNING})).look()[submitted.id]
    assert looked.state == "done" and looked.record.reason == "of this run" and not looked.active


def test_only_the_last_submission_and_its_heartbeat_count(tmp_path):
    first, second = trial("one"), trial("two")
    cancelled(submission(tmp_path, (first,), (second,)))
    submission(tmp_path, (first,), name=f"{NAME}1")
    with Heartbeat(tmp_path, first, beat()):
        looked = Submissions(tmp_path, queue({0: RUNNING})).look()
    assert {name: state.state for name, state in looked.items()} == {first.id: "waiting", second.id: "cancelled"}
    assert counted(looked.values()) == "on the cluster: 1 waiting, 1 cancelled"
    assert Submissions(tmp_path, queue(None)).look({second.id}).keys() == {second.id}


def test_status_shows_the_fault_of_a_job(tmp_path):
    submitted = trial("one")
    fault = fault_path(submission(tmp_path, (submitted,)), submitted.id)
    fault.parent.mkdir()
    fault.write_text("digits: not prepared\n")
    assert "lost: digits: not prepared" in lines(Submissions(tmp_path, queue({0: ENDED})).look())[1]


@pytest.fixture
def lax_umask():
    before = os.umask(0o002)
    yield
    os.umask(before)


def refusal(folder):
    """Return why a job would not run from a folder; the check in its script must agree with that in Python."""
    shell = subprocess.run(["sh", "-c", check_in_shell(folder)], capture_output=True, text=True, check=False)
    try:
        check_private(folder)
    except UserError as error:
        assert shell.returncode == 1 and f"{folder}: must be a folder of the user who submits" in shell.stderr
        return str(error)
    assert (shell.returncode, shell.stderr) == (0, "")
    return None


def test_folders_of_jobs_are_private_whatever_the_umask(tmp_path, lax_umask):
    folder = tmp_path / "it's"
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700 and refusal(folder) is None
    for mode in (0o710, 0o770, 0o2775, 0o702):
        folder.chmod(mode)
        assert f"it is a folder of user {os.getuid()}, mode {mode:04o}" in refusal(folder)
    make_private(folder)
    assert refusal(folder) is None
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(UserError, match="it is no folder"):
        make_private(tmp_path / "link")
    assert refusal(tmp_path / "link") and folder.stat().st_mode & 0o777 == 0o700


def test_folders_of_another_user_are_refused(tmp_path, monkeypatch):
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(UserError, match=f"a folder of user {owner}"):
        make_private(tmp_path / "theirs")
    assert refusal(tmp_path / "theirs")


def test_a_local_run_refuses_a_folder_that_cluster_jobs_use(tmp_path, monkeypatch):
    local, slurm = (executor_class(name)(None, Cluster(), ()) for name in ("local", "slurm"))
    assert attached_trials(tmp_path, local) == set()
    first, second = trial("one"), trial("two")
    place = submission(tmp_path, (first,), (second,))
    write_record(tmp_path / "records", blank_record(second, "ok", None))
    monkeypatch.setenv("PATH", str(tmp_path))  # without squeue, the trial may still be waiting
    with pytest.raises(UserError, match=r"1 waiting.*cancel "):
        attached_trials(tmp_path, local)
    assert attached_trials(tmp_path, slurm) == {first.id}
    cancelled(place)
    assert attached_trials(tmp_path, local) == attached_trials(tmp_path, slurm) == set()
    with Heartbeat(tmp_path, first, beat()), pytest.raises(UserError, match="1 cancelled"):
        attached_trials(tmp_path, local)  # cancelled, but not ended yet


@pytest.mark.parametrize("content", ["", "{}", '{"name": "invertbench-a b"}'])
def test_a_damaged_submission_is_an_error_that_names_its_file(tmp_path, content):
    place = submission(tmp_path, (trial("one"),))
    (place / "submission.json").write_text(content)
    with pytest.raises(UserError, match=r"submission.json: not a readable submission"):
        Submissions(tmp_path)


def test_the_heartbeat_lasts_until_the_end_of_the_trial(tmp_path):
    running = trial("one")
    with Heartbeat(tmp_path, running, beat(seconds=0.1)) as heartbeat:
        first = beat_path(tmp_path, running.id).stat().st_mtime_ns
        heartbeat.update(running, 0.15, "step 6/40")
        end = time.monotonic() + 20
        while read_beat(tmp_path, running.id)[0].text != "step 6/40" and time.monotonic() < end:
            time.sleep(0.02)
        last, _ = read_beat(tmp_path, running.id)
        assert (last.text, last.fraction) == ("step 6/40", 0.15)
        assert beat_path(tmp_path, running.id).stat().st_mtime_ns > first
    assert not list((tmp_path / "heartbeats").iterdir())


def test_a_job_waits_for_another_that_runs_its_trial(tmp_path):
    running = trial("one")
    wait_for_silence(tmp_path, running, "8_0")
    with Heartbeat(tmp_path, running, beat(seconds=0.1)):
        wait_for_silence(tmp_path, running, "7_0")  # of this job, from before it was requeued
        with pytest.raises(UserError, match="job 7_0 already runs"):
            wait_for_silence(tmp_path, running, "8_0")
    path = beat_path(tmp_path, running.id)
    path.write_text(beat(seconds=0.1).model_dump_json())
    os.utime(path, (time.time() + 3600,) * 2)  # as written by a machine whose clock is ahead
    wait_for_silence(tmp_path, running, "8_0")


def test_a_job_refuses_data_other_than_those_prepared_by_the_run(tmp_path):
    def on(checksum):
        return DensityTrial(
            suite="s",
            profile="smoke",
            data=DataRef(label="digits", name="digits", checksum=checksum),
            layer=LAYER,
            flow=FlowSettings(),
            training=TrainingSettings(),
            seed=0,
        )

    check_prepared(on(None), None, "on a shared disk")
    with pytest.raises(DataError, match=r"digits: the data have checksum None, .* prepared abc .* shared disk"):
        check_prepared(on("abc"), None, "on a shared disk")


def test_output_of_squeue_is_parsed():
    text = "name|0|RUNNING|None\nname|N/A|PENDING|Resources\nname2|N/A|FAILED|a|b\nnonsense\n"
    assert parse(text) == {
        "name": {0: Job("RUNNING", "None"), None: Job("PENDING", "Resources")},
        "name2": {None: Job("FAILED", "a|b")},
    }
