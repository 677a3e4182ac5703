"""The state of trials that were submitted to a cluster, from files and from the answer of the queue."""

import os
import time

import pytest

from harness.core.errors import DataError, UserError
from harness.core.records import blank_record, write_record
from harness.core.run_options import RunOptions
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.execution.data import check_prepared
from harness.execution.outcome import SIGNAL, digest
from harness.execution.slurm.slurm_job import Heartbeat, wait_for_silence
from harness.execution.slurm.squeue import Job, parse
from harness.execution.slurm.submissions import (
    CANCELLED,
    Beat,
    Submission,
    Submissions,
    at_work,
    beat_path,
    counted,
    fault_path,
    judge,
    lines,
    read_beat,
)
from harness.kinds.density.trial import DensityTrial
from harness.kinds.parameters.trial import ParametersTrial

LAYER = LayerRef(row="one", layer="conv1x1")
NAME = "invertbench-s-1"
RUNNING, PENDING = Job("RUNNING", "None"), Job("PENDING", "Resources")
ENDED = Job("TIMEOUT", "TimeLimit")


def trial(label):
    return ParametersTrial(suite="s", profile="smoke", label=label, shape=(2, 4), layer=LAYER, flow=FlowSettings())


def beat(job="7_0", submission=NAME, **changes):
    return Beat(submission=submission, job=job, text="step 5/40", **{"seconds": 10.0} | changes)


def known(jobs):
    """Return a queue that answers with these jobs for every name."""
    return lambda names: None if jobs is None else dict.fromkeys(names, jobs)


def cancelled(place):
    (place / CANCELLED).touch()


def submission(out, *jobs, name=NAME):
    before = {one.id: found for job in jobs for one in job if (found := digest(out / "records" / f"{one.id}.json"))}
    made = Submission(
        name=name, jobs=jobs, before=before, run_options=RunOptions(out), cache=out / "cache", heartbeat=10.0
    )
    made.save(out / "slurm" / name)
    return out / "slurm" / name


@pytest.mark.parametrize(
    ("last", "age", "jobs", "fault", "state", "said", "active"),
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
def test_states(last, age, jobs, fault, state, said, active):
    found = judge(last, age, 0, jobs, fault)
    assert (found[0], found[2]) == (state, active) and said in found[1]


def test_a_trial_is_done_when_its_record_has_changed(tmp_path):
    one = trial("one")
    write_record(tmp_path / "records", blank_record(one, "error", "of an earlier run"))
    submission(tmp_path, (one,))
    assert Submissions(tmp_path, known({0: RUNNING})).look()[one.id].state == "waiting"
    ended = blank_record(one, "killed", "ended by SIGTERM")
    ended.notes[SIGNAL] = "SIGTERM"
    write_record(tmp_path / "records", ended)
    assert Submissions(tmp_path, known({0: ENDED})).look()[one.id].state == "lost", "it runs again"
    write_record(tmp_path / "records", blank_record(one, "error", "of this run"))
    looked = Submissions(tmp_path, known({0: RUNNING})).look()[one.id]
    assert looked.state == "done" and looked.record.reason == "of this run" and not looked.active


def test_only_the_last_submission_and_its_heartbeat_count(tmp_path):
    one, two = trial("one"), trial("two")
    cancelled(submission(tmp_path, (one,), (two,)))
    submission(tmp_path, (one,), name=f"{NAME}1")
    with Heartbeat(tmp_path, one, beat()):
        looked = Submissions(tmp_path, known({0: RUNNING})).look()
    assert {name: found.state for name, found in looked.items()} == {one.id: "waiting", two.id: "cancelled"}
    assert counted(looked.values()) == "on the cluster: 1 waiting, 1 cancelled"
    assert Submissions(tmp_path, known(None)).look({two.id}).keys() == {two.id}


def test_status_shows_the_fault_of_a_job(tmp_path):
    one = trial("one")
    fault = fault_path(submission(tmp_path, (one,)), one.id)
    fault.parent.mkdir()
    fault.write_text("digits: not prepared\n")
    assert "lost: digits: not prepared" in lines(Submissions(tmp_path, known({0: ENDED})).look())[1]


def test_a_local_run_refuses_a_folder_that_cluster_jobs_use(tmp_path, monkeypatch):
    assert at_work(tmp_path, "local") == set()
    one, two = trial("one"), trial("two")
    place = submission(tmp_path, (one,), (two,))
    write_record(tmp_path / "records", blank_record(two, "ok", None))
    monkeypatch.setenv("PATH", str(tmp_path))  # without squeue, the trial may still be waiting
    with pytest.raises(UserError, match=r"1 waiting.*cancel "):
        at_work(tmp_path, "local")
    assert at_work(tmp_path, "slurm") == {one.id}
    cancelled(place)
    assert at_work(tmp_path, "local") == at_work(tmp_path, "slurm") == set()
    with Heartbeat(tmp_path, one, beat()), pytest.raises(UserError, match="1 cancelled"):
        at_work(tmp_path, "local")  # cancelled, but not ended yet


@pytest.mark.parametrize("content", ["", "{}", '{"name": "invertbench-a b"}'])
def test_a_damaged_submission_is_named(tmp_path, content):
    place = submission(tmp_path, (trial("one"),))
    (place / "submission.json").write_text(content)
    with pytest.raises(UserError, match=r"submission.json: not a readable submission"):
        Submissions(tmp_path)


def test_the_heartbeat_lasts_until_the_end_of_the_trial(tmp_path):
    one = trial("one")
    with Heartbeat(tmp_path, one, beat(seconds=0.1)) as heartbeat:
        first = beat_path(tmp_path, one.id).stat().st_mtime_ns
        heartbeat.update(one, 0.15, "step 6/40")
        end = time.monotonic() + 20
        while read_beat(tmp_path, one.id)[0].text != "step 6/40" and time.monotonic() < end:
            time.sleep(0.02)
        found, _ = read_beat(tmp_path, one.id)
        assert (found.text, found.fraction) == ("step 6/40", 0.15)
        assert beat_path(tmp_path, one.id).stat().st_mtime_ns > first
    assert not list((tmp_path / "heartbeats").iterdir())


def test_a_job_waits_for_another_that_runs_its_trial(tmp_path):
    one = trial("one")
    wait_for_silence(tmp_path, one, "8_0")
    with Heartbeat(tmp_path, one, beat(seconds=0.1)):
        wait_for_silence(tmp_path, one, "7_0")  # its own, from before it was requeued
        with pytest.raises(UserError, match="job 7_0 already runs"):
            wait_for_silence(tmp_path, one, "8_0")
    path = beat_path(tmp_path, one.id)
    path.write_text(beat(seconds=0.1).model_dump_json())
    os.utime(path, (time.time() + 3600,) * 2)  # of a machine whose clock is ahead
    wait_for_silence(tmp_path, one, "8_0")


def test_data_must_be_those_that_the_run_has_prepared(tmp_path):
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

    check_prepared(on(None), None)
    with pytest.raises(DataError, match=r"digits: the data have checksum None, .* prepared abc .* shared disk"):
        check_prepared(on("abc"), None)


def test_parse_the_answer_of_squeue():
    text = "name|0|RUNNING|None\nname|N/A|PENDING|Resources\nother|N/A|FAILED|a|b\nnonsense\n"
    assert parse(text) == {
        "name": {0: Job("RUNNING", "None"), None: Job("PENDING", "Resources")},
        "other": {None: Job("FAILED", "a|b")},
    }
