"""Records and checkpoints that the process of a trial leaves."""

import errno

import pytest

from harness.core.errors import Diverged
from harness.core.files import Unwritten, write_atomically
from harness.core.records import blank_record, read_record
from harness.core.run_options import RunOptions
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.core.third_party import source_digest
from harness.execution.trial import execute
from harness.kinds.density.trial import DensityTrial

TRIAL = DensityTrial(
    suite="s",
    profile="smoke",
    data=DataRef(label="digits", name="digits"),
    layer=LayerRef(row="one", layer="conv1x1"),
    flow=FlowSettings(levels=1, steps=1, width=4),
    training=TrainingSettings(steps=2, batch_size=16, evaluate_every=1),
    seed=0,
)
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
    trial = DensityTrial.model_validate(TRIAL.model_dump() | {"layer": ref})
    run = (trial, RunOptions(tmp_path), PROVENANCE, lambda *_: None, lambda trial, *_: blank_record(trial, "ok", None))
    assert execute(*run).status == "ok"
    with (tmp_path / "mine.py").open("a") as file:
        file.write("ODD = 1\n")
    record = execute(*run)
    assert record.status == "error" and "mine.py has changed since the run was planned" in record.reason
