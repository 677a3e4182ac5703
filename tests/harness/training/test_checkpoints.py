"""Resumed training equals uninterrupted training bit by bit, also with damaged checkpoints."""

import errno
import hashlib
import io
import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toys import density_trial

from harness.core.checkpoint_files import checkpoint_files, newest_header
from harness.core.run_options import RunOptions
from harness.core.settings import LayerRef
from harness.datasets import Store, find_dataset
from harness.pipeline.models import build_flow
from harness.pipeline.pipeline import Pipeline
from harness.training.checkpoints import Checkpoints, read_checkpoint
from harness.training.training import Callback, fit

SOURCES = {"layers/one.py": "aaa", "flows/glow.py": "bbb"}
WOODBURY = LayerRef(row="one", layer="woodbury", options={"rank_channels": 1, "rank_space": 2})
RESIDUAL = LayerRef(row="one", layer="residual_flow", baseline=True)


def make_trial(ema="none", **changes):
    training = {"steps": 13, "batch_size": 40, "evaluate_every": 4, "learning_rate": 1e-2, "ema_decay": 0.8}
    return density_trial(WOODBURY, "digits", training=training | {"ema": ema} | changes, seed=3)


def few_digits():
    """Return few digits; an epoch is not a whole number of minibatches."""
    splits = find_dataset("digits").load(Store.at(None, offline=True), {})
    return replace(splits, **{name: values[:150] for name, values in splits.parts().items()})


@pytest.fixture(scope="module")
def digits():
    return few_digits()


@pytest.fixture(scope="module")
def whole(digits, tmp_path_factory):
    """Return an undisturbed training of `make_trial()`."""
    return train(make_trial(), digits, tmp_path_factory.mktemp("whole"))


class Killed(Exception):
    pass


class KilledAfter(Checkpoints):
    """Raise an exception after a given step and its checkpoint."""

    def __init__(self, *arguments, at):
        super().__init__(*arguments)
        self.at = at
        self.calls = 0

    def due(self):
        self.calls += 1
        if self.calls > self.at:
            raise Killed
        return super().due()


def train(trial, splits, out, at=None, sources=SOURCES, wrap=Checkpoints, callbacks=(), **changes):
    """Train once, from a checkpoint if present; stop after `at` steps, or return weights, result and notes."""
    torch.manual_seed(trial.seed)
    pipeline = Pipeline(splits, trial.data)
    flow = build_flow(pipeline.shape, trial.layer, trial.flow, trial.seed)
    arguments = (trial, trial.training.steps, RunOptions(out, checkpoint=0, **changes), sources)
    checkpoints = wrap(*arguments) if at is None else KilledAfter(*arguments, at=at)
    result = fit(flow, pipeline, trial.training, trial.seed, lambda *_: None, checkpoints, callbacks)
    return flow.state_dict(), result, checkpoints


def cut_at(trial, digits, out, at):
    """Train until a step, and return the checkpoints."""
    with pytest.raises(Killed):
        train(trial, digits, out, at=at)
    return checkpoint_files(out, trial.id)


def assert_equal(first, second):
    weights, result, _ = first
    second_weights, second_result, _ = second
    assert weights.keys() == second_weights.keys()
    assert all(torch.equal(weights[name], second_weights[name]) for name in weights)
    curves, second_curves = (
        {name: curve for name, curve in fit.curves.items() if name != "seconds"} for fit in (result, second_result)
    )
    assert curves == second_curves
    assert len(result.curves["seconds"]) == len(result.curves["step"])
    for name in ("best_step", "steps_done", "passes", "stopped_early"):
        assert getattr(result, name) == getattr(second_result, name), name


@pytest.mark.parametrize(
    ("layer", "ema"), [*((WOODBURY, ema) for ema in ("none", "all", "separate")), (RESIDUAL, "none"), (RESIDUAL, "all")]
)
def test_resumed_training_is_bitwise_identical(digits, tmp_path, layer, ema):
    """Interrupted within an epoch and at its end, between evaluations and at one, more than once.

    Of a flow with estimates, their generator and the vectors of the power iteration are restored as well.
    """
    trial = make_trial(ema).model_copy(update={"layer": layer})
    whole = train(trial, digits, tmp_path / "whole")
    for steps in (2, 5, 1, 3):
        cut_at(trial, digits, tmp_path / "cut", steps)
    again = train(trial, digits, tmp_path / "cut")
    assert_equal(again, whole)
    assert again[2].notes["resumed"] == "training was interrupted 4 times, and resumed from step 11 of 13"
    assert again[1].train_seconds > 0 and again[2].seconds > 0


def test_resumed_training_keeps_the_patience_counter(digits, tmp_path):
    trial = make_trial(learning_rate=0.2, evaluate_every=1, patience=3, warmup=0)
    whole = train(trial, digits, tmp_path / "whole")
    assert whole[1].stopped_early and whole[1].steps_done > 4
    for _ in range(whole[1].steps_done - 1):
        cut_at(trial, digits, tmp_path / "cut", 1)
    assert_equal(train(trial, digits, tmp_path / "cut"), whole)
    # Killed between the end of training and the record: nothing is trained again.
    done = train(trial, digits, tmp_path / "cut")
    assert_equal(done, whole)
    assert f"from step {whole[1].steps_done} of" in done[2].notes["resumed"]


class Count(Callback):
    steps = 0

    def on_step(self):
        self.steps += 1

    def on_validation(self, flow, value, curves):
        curves.setdefault("steps", []).append(self.steps)
        return value

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def test_resumed_training_keeps_the_state_of_a_callback(digits, tmp_path):
    with pytest.raises(Killed):
        train(make_trial(), digits, tmp_path, at=6, callbacks=[Count()])
    _, result, _ = train(make_trial(), digits, tmp_path, callbacks=[Count()])
    assert result.curves["steps"] == result.curves["step"] == [4, 8, 12, 13]


def test_resumed_training_restores_the_global_generator(digits, tmp_path):
    """Layers that draw in forward use it."""
    trial = make_trial()

    def drawn(at):
        torch.manual_seed(0)
        cut_at(trial, digits, tmp_path, at)
        return torch.rand(3)

    first = drawn(1)
    assert torch.equal(drawn(1), first), "the state of the generator is the checkpoint's, not the process's"


def test_two_checkpoints_are_kept(digits, tmp_path):
    files = cut_at(make_trial(), digits, tmp_path, 5)
    assert [path.name for path in files] == ["000000005.ckpt", "000000004.ckpt"]
    header = newest_header(tmp_path, make_trial().id)
    assert (header.step, header.steps, header.sources) == (5, 13, SOURCES)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


SPOILT = "it is damaged: its checksum does not fit"


class Trap:
    def __reduce__(self):
        return (os.system, ("touch ran",))


def resealed(path, state):
    """Replace the state of a checkpoint, under a checksum that fits."""
    line = path.read_bytes().partition(b"\n")[0] + b"\n"
    payload = io.BytesIO()
    torch.save(state, payload)
    body = line + payload.getvalue()
    path.write_bytes(body + hashlib.sha256(body).digest())


DAMAGE = {
    "a flipped bit": (flip, SPOILT),
    "a torn end": (lambda path: os.truncate(path, path.stat().st_size // 2), SPOILT),
    "nothing": (lambda path: os.truncate(path, 0), "it has no header"),
    "rubbish": (lambda path: path.write_bytes(b"\x80\x04\x95" * 100), "it has no header"),
    "another format": (
        lambda path: path.write_bytes(path.read_bytes().replace(b'"format": 2', b'"format": 9', 1)),
        "it has no header of format 2",
    ),
    "code": (lambda path: resealed(path, {"parts": Trap()}), "it is not readable"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_skipped(digits, whole, tmp_path, monkeypatch, damage):
    monkeypatch.chdir(tmp_path)
    trial = make_trial()
    spoil, words = DAMAGE[damage]
    spoil(cut_at(trial, digits, tmp_path / "cut", 7)[0])
    again = train(trial, digits, tmp_path / "cut")
    assert_equal(again, whole)
    assert f"000000007.ckpt is skipped ({words}" in again[2].notes["checkpoints"]
    assert "resumed from step 6" in again[2].notes["resumed"]
    assert not Path("ran").exists(), "nothing is unpickled that could run code"


def test_with_both_checkpoints_damaged_training_restarts(digits, whole, tmp_path):
    trial = make_trial()
    for path in cut_at(trial, digits, tmp_path / "cut", 7):
        flip(path)
    again = train(trial, digits, tmp_path / "cut")
    assert_equal(again, whole)
    assert "resumed" not in again[2].notes and again[2].seconds == 0


def test_a_checkpoint_of_another_trial_is_not_used(digits, tmp_path):
    trial, changed = make_trial(), make_trial(learning_rate=0.5)
    path = cut_at(trial, digits, tmp_path, 2)[0]
    place = tmp_path / "checkpoints" / changed.id
    place.mkdir()
    path.rename(place / path.name)
    again = train(changed, digits, tmp_path)
    assert f"it is of trial {trial.id}" in again[2].notes["checkpoints"] and "resumed" not in again[2].notes


def test_a_checkpoint_of_another_choice_is_not_used(digits, whole, tmp_path):
    """The candidates ran again after the interruption, and another one was chosen: training starts anew."""

    def chosen(*arguments):
        checkpoints = Checkpoints(*arguments)
        checkpoints.chosen = '{"training.learning_rate": 0.01}'
        return checkpoints

    cut_at(make_trial(), digits, tmp_path / "cut", 5)
    anew = train(make_trial(), digits, tmp_path / "cut", wrap=chosen)
    assert_equal(anew, whole)
    assert "its tuning had chosen other settings" in anew[2].notes["checkpoints"] and "resumed" not in anew[2].notes


def test_a_checkpoint_with_other_parameters_changes_nothing(digits, whole, tmp_path):
    """A layer was changed under `--stale keep`: its old weights do not fit, and none of them is loaded."""
    trial = make_trial()
    for path in cut_at(trial, digits, tmp_path / "cut", 2):
        _, state = read_checkpoint(path)
        weights = state["parts"]["flow"]
        weights[next(reversed(weights))] = torch.zeros(7, 7)
        resealed(path, state)
    again = train(trial, digits, tmp_path / "cut")
    assert_equal(again, whole)
    assert "size mismatch" in again[2].notes["checkpoints"] or "Error(s) in loading" in again[2].notes["checkpoints"]


def test_checkpoints_of_changed_source_are_used_or_skipped_as_requested(digits, tmp_path):
    trial = make_trial()
    changed = SOURCES | {"flows/glow.py": "ccc"}
    cut_at(trial, digits, tmp_path / "keep", 3)
    kept = train(trial, digits, tmp_path / "keep", sources=changed)
    assert "until then by other source: flows/glow.py changed" in kept[2].notes["resumed"]
    assert kept[2].sources == SOURCES, "the record says which source made the result, and stays stale"
    cut_at(trial, digits, tmp_path / "rerun", 3)
    anew = train(trial, digits, tmp_path / "rerun", sources=changed, stale="rerun")
    assert "made by other source: flows/glow.py changed" in anew[2].notes["checkpoints"]
    assert "resumed" not in anew[2].notes and anew[2].sources == changed


def test_a_full_disk_loses_a_checkpoint_but_not_the_training(digits, whole, tmp_path, monkeypatch):
    trial = make_trial()
    cut_at(trial, digits, tmp_path / "cut", 2)
    full = itertools.count()

    def sync(handle, original=os.fsync):
        if next(full) >= 4:  # two calls per checkpoint: the file and its folder
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(handle)

    monkeypatch.setattr("os.fsync", sync)
    again = train(trial, digits, tmp_path / "cut")
    assert_equal(again, whole)
    lost = "10 could not be written, 000000013.ckpt last ([Errno 28] No space left on device)"
    assert again[2].notes["checkpoints lost"] == lost
    files = checkpoint_files(tmp_path / "cut", trial.id)
    assert [path.name for path in files] == ["000000004.ckpt", "000000003.ckpt"], "the last good ones stay"
    assert not list(files[0].parent.glob(".*"))
    monkeypatch.undo()
    assert "resumed from step 4" in train(trial, digits, tmp_path / "cut")[2].notes["resumed"]


def test_writing_checkpoints_takes_at_most_a_twentieth_of_the_time(digits, tmp_path, monkeypatch):
    checkpoints = Checkpoints(make_trial(), 13, RunOptions(tmp_path, checkpoint=60), SOURCES)
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    checkpoints._begin = checkpoints._last = now[0]

    class Slow(dict):
        def state_dict(self):
            now[0] += 9
            return {}

    assert not checkpoints.due()
    now[0] += 60
    assert checkpoints.due()
    checkpoints.save(1, {"flow": Slow()})
    now[0] += 179
    assert not checkpoints.due()
    now[0] += 1
    assert checkpoints.due()


LIMITED = """
import resource, sys
sys.path[:0] = {paths!r}
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
from pathlib import Path
import test_checkpoints as tests
weights, result, checkpoints = tests.train(tests.make_trial(), tests.few_digits(), Path({out!r}))
print(result.steps_done, checkpoints.notes["checkpoints lost"])
"""


@pytest.mark.system
@pytest.mark.skipif(sys.platform == "win32", reason="no RLIMIT_FSIZE")
def test_a_file_size_limit_is_treated_as_a_full_disk(tmp_path):
    """The write itself fails, in the middle of the file."""
    here, toys = Path(__file__).resolve(), Path(sys.modules["toys"].__file__).parent
    script = LIMITED.format(paths=[*map(str, (here.parents[3], here.parent, toys))], out=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("13 14 could not be written, 000000013.ckpt last ("), done.stdout
    assert not list(tmp_path.rglob("*.ckpt")) and not list(tmp_path.rglob("*.tmp"))
