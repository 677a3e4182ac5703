"""States of trials submitted to a cluster, derived from records and from the output of squeue."""

import os

import pytest

from harness.core.errors import DataError, UserError
from harness.core.records import blank_record, write_record
from harness.core.run_options import RunOptions
from harness.execution.executor import attached_trials, executor_class
from harness.execution.executors.slurm import Slurm
from harness.execution.outcome import SIGNAL, digest
from harness.execution.remote import check_prepared
from harness.execution.slurm.submissions import Submission, submitted_trials

NAME = "invertbench-s-1"


def submission(out, *jobs, name=NAME):
    before = {trial.id: old for job in jobs for trial in job if (old := digest(out / "records" / f"{trial.id}.json"))}
    submitted = Submission(name=name, jobs=jobs, before=before, run_options=RunOptions(out))
    submitted.save(out / "slurm" / name)
    return out / "slurm" / name


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Let squeue print a text; None: it fails."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def squeue(text):
        (programs / "squeue").write_text("#!/bin/sh\nexit 1\n" if text is None else f"#!/bin/sh\nprintf '{text}'\n")
        (programs / "squeue").chmod(0o755)

    return squeue


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (f"{NAME}|0|PENDING\\n", "waiting", "PENDING"),
        (f"{NAME}|N/A|PENDING\\n", "waiting", "PENDING"),
        (None, "waiting", "does not answer"),
        (f"{NAME}|0|RUNNING\\n{NAME}|1|PENDING\\n", "running", "RUNNING"),
        (f"{NAME}|1|RUNNING\\n", "ended", "its job has ended, and left no record: digits: not prepared"),
    ],
)
def test_the_state_of_a_trial_without_a_record_is_that_of_its_job(tmp_path, squeue, answer, state, words, trial):
    squeue(answer)
    submitted = trial("one")
    log = submission(tmp_path, (submitted,)) / "0.log"
    log.write_text("digits: not prepared\n[1/1] other: ok\n\n")
    looked = submitted_trials(tmp_path)[submitted.id]
    assert looked.state == state and words in looked.text
    assert Slurm.active(tmp_path) == (set() if state == "ended" else {submitted.id})
    assert Slurm.status(tmp_path)[0] == f"on the cluster: 1 {state}"


def test_a_trial_is_done_when_its_record_has_changed(tmp_path, squeue, trial):
    submitted = trial("one")
    write_record(tmp_path / "records", blank_record(submitted, "error", "of an earlier run"))
    submission(tmp_path, (submitted,))
    squeue(f"{NAME}|0|RUNNING\\n")
    assert submitted_trials(tmp_path)[submitted.id].state == "running"
    ended = blank_record(submitted, "killed", "ended by SIGTERM")
    ended.notes[SIGNAL] = "SIGTERM"
    write_record(tmp_path / "records", ended)
    squeue("")
    assert submitted_trials(tmp_path)[submitted.id].state == "ended", "it runs again"
    write_record(tmp_path / "records", blank_record(submitted, "error", "of this run"))
    squeue(f"{NAME}|0|RUNNING\\n")
    looked = submitted_trials(tmp_path)[submitted.id]
    assert looked.state == "done" and looked.record.reason == "of this run"
    assert Slurm.status(tmp_path) == []


def test_only_the_last_submission_counts(tmp_path, squeue, trial):
    first, second = trial("one"), trial("two")
    submission(tmp_path, (first,), (second,))
    submission(tmp_path, (first,), name=f"{NAME}1")
    squeue(f"{NAME}|0|RUNNING\\n{NAME}1|0|PENDING\\n")
    looked = submitted_trials(tmp_path)
    assert {name: state.state for name, state in looked.items()} == {first.id: "waiting", second.id: "ended"}
    assert submitted_trials(tmp_path, {second.id}).keys() == {second.id}


def test_a_local_run_refuses_a_folder_that_cluster_jobs_use(tmp_path, squeue, trial):
    local, slurm = (executor_class(name)() for name in ("local", "slurm"))
    assert attached_trials(tmp_path, local) == set()
    first, second = trial("one"), trial("two")
    submission(tmp_path, (first,), (second,))
    write_record(tmp_path / "records", blank_record(second, "ok", None))
    squeue(None)  # the trial may still be waiting
    with pytest.raises(UserError, match=r"1 waiting.*cancel "):
        attached_trials(tmp_path, local)
    assert attached_trials(tmp_path, slurm) == {first.id}
    squeue("")
    assert attached_trials(tmp_path, local) == attached_trials(tmp_path, slurm) == set()


def test_a_damaged_submission_is_an_error_that_names_its_file(tmp_path, trial):
    place = submission(tmp_path, (trial("one"),))
    (place / "submission.json").write_text("{}")
    with pytest.raises(UserError, match=r"submission.json: not a readable submission"):
        submitted_trials(tmp_path)


def test_a_job_refuses_data_other_than_those_prepared_by_the_run(trained):
    check_prepared(trained(label="digits", name="digits"), None, "on a shared disk")
    with pytest.raises(DataError, match=r"digits: the data have checksum None, .* prepared abc .* shared disk"):
        check_prepared(trained(label="digits", name="digits", checksum="abc"), None, "on a shared disk")
