"""`harness.load_flow`: a trained flow scores and draws events in the data's units, without the data."""

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from toys import density_trial, run_quietly

import harness
from harness.core.errors import UserError
from harness.core.records import write_record
from harness.core.settings import DataRef
from harness.datasets import Splits, Store, find_dataset
from harness.kinds.density.trial import CandidateTrial, DensityTrial
from harness.kinds.density.weights import write_weights
from harness.planning.plan import Plan

SEED = 3
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "results.md"


def toy(kind):
    """Return small splits: an image of 5 levels, or a sequence of whole or real numbers of different ranges."""
    draw = np.random.default_rng(0)
    shape = (1, 4, 4) if kind == "image" else (2, 8)
    parts = [draw.binomial(4, 0.3, (n, *shape)).astype(np.int16) for n in (40, 12, 12)]
    if kind == "image":
        return Splits(*parts, levels=5, description="toy")
    parts = [part * np.array([[1], [30]], np.int16) for part in parts]
    if kind == "sequence":
        return Splits(*parts, levels=None, description="toy")
    parts = [(part + draw.random(part.shape)).astype(np.float32) for part in parts]
    return Splits(*parts, levels=None, description="toy", lattice=False)


@pytest.fixture
def trained(tmp_path, use_data):
    """Return a function that trains a flow on a toy, and returns (splits, trial, record)."""

    def train(data):
        splits = data if isinstance(data, Splits) else toy(data)
        encoding = {"permute": "per-seed", "preprocessing": "scale" if splits.levels is None else "logit"}
        use_data(splits)
        reference = DataRef(label="toy", name="toy", allow_unbounded=True, **encoding)
        training = {"steps": 3, "batch_size": 16, "evaluate_every": 3, "evaluation_batch": 12}
        trial = density_trial("butterfly", reference, training=training, seed=SEED)
        record = run_quietly(trial, tmp_path)
        about = {"suite": "toy", "kind": "density", "title": "", "question": "", "profile": "smoke", "device": "cpu"}
        names = CandidateTrial.model_fields.keys() - {"kind", "candidate", "short"}
        candidate = CandidateTrial(**{name: getattr(trial, name) for name in names}, candidate=0)
        Plan(**about, rows=("butterfly",), columns=("toy",), seeds=(SEED,), trials=(candidate, trial)).save(tmp_path)
        write_record(tmp_path / "records", record)
        return splits, trial, record, candidate

    return train


@pytest.mark.parametrize("kind", ["image", "sequence", "real numbers"])
def test_scores_and_samples_are_those_of_the_trial(trained, tmp_path, kind):
    splits, trial, record, _ = trained(kind)
    loaded = harness.load_flow(str(tmp_path), trial.id)
    values = loaded.log_prob(splits.test, seed=SEED)
    assert values.shape == (12,) and values.dtype == np.float64
    dim = math.prod(splits.shape)
    assert -values.mean() / (dim * math.log(2)) == pytest.approx(record.rows[0]["bits_per_dim"], abs=1e-12)
    assert np.array_equal(values, loaded.log_prob(splits.test, seed=SEED))
    assert np.array_equal(values, loaded.log_prob(torch.from_numpy(splits.test), seed=SEED))
    assert (loaded.log_prob(splits.test, seed=SEED + 1) != values).all() == splits.lattice, "the noise follows the seed"
    drawn = loaded.sample(12, seed=SEED)
    assert np.array_equal(drawn, np.load(tmp_path / "records" / record.arrays)["samples"])
    assert drawn.dtype == splits.test.dtype and loaded.sample(40).shape == (40, *splits.shape)


def test_values_of_a_file_are_in_its_units(trained, tmp_path):
    """Columns of other steps and offsets: 0.01, and 5 counted from 3."""
    draw = np.random.default_rng(0)
    values = np.stack([draw.normal(size=200).cumsum().round(2), 3 + 5.0 * draw.integers(0, 30, 200)], axis=1)
    np.savetxt(tmp_path / "mine.csv", values, fmt=["%.2f", "%.0f"], delimiter=",")
    store = Store(tmp_path, tmp_path / "cache", offline=True)
    _, trial, record, _ = trained(find_dataset("csv").load(store, {"file": "mine.csv", "columns": 2, "header": False}))
    loaded = harness.load_flow(tmp_path, trial.id)
    test = values[180:, :, None]
    per_entry = -record.rows[0]["bits_per_dim"] * math.log(2)  # of whole numbers of steps, per event and dimension
    assert loaded.log_prob(test, seed=SEED).mean() == pytest.approx(2 * per_entry - math.log(0.01) - math.log(5))
    np.testing.assert_allclose(loaded.log_prob(test.astype(np.float32), seed=SEED), loaded.log_prob(test, seed=SEED))
    drawn = loaded.sample(200)
    assert np.isfinite(loaded.log_prob(drawn)).all(), "draws are values that the data can have"
    spread = values.std(0)
    np.testing.assert_allclose(drawn.mean((0, 2)), values.mean(0), atol=3 * spread.max())
    assert (drawn.std((0, 2)) < 5 * spread).all() and (drawn.std((0, 2)) > spread / 5).all()
    for column, move, words in ((0, 0.005, "the step 0.01 from 0"), (1, 1, "the step 5 from 3")):
        wrong = test.copy()
        wrong[7, column] += move
        with pytest.raises(UserError, match=f"event 7, channel {column}: .* is not a multiple of {words}"):
            loaded.log_prob(wrong)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda flow: flow.sample("3"), "n: expected a whole number, got the string '3'"),
        (lambda flow: flow.sample(2.5), "n: expected a whole number, got the number 2.5"),
        (lambda flow: flow.sample(-1), "n: the number -1 must be at least 0"),
        (lambda flow: flow.sample(10**12), r"n: 1000000000000 events of shape .* draw at most [\d,]+"),
        (lambda flow: flow.sample(3, seed=None), "seed: expected a whole number"),
        (lambda flow: flow.log_prob(np.zeros((1, *flow.shape)), seed="a"), "seed: expected a whole number"),
    ],
)
def test_wrong_arguments_are_named(trained, tmp_path, call, reason):
    _, trial, *_ = trained("sequence")
    loaded = harness.load_flow(tmp_path, trial.id)
    assert loaded.sample(np.int64(2)).shape[0] == 2
    with pytest.raises(UserError, match=reason):
        call(loaded)


@pytest.mark.parametrize("lattices", ["none", [{"offset": 0.0, "step": 0.0}], [{"offset": 0.0, "step": 1.0}] * 3])
def test_weights_with_wrong_units_or_without_them_are_refused(trained, tmp_path, lattices):
    _, trial, _, _ = trained("sequence")
    path = tmp_path / "weights" / f"{trial.id}.pt"
    content = torch.load(path)
    if lattices == "none":
        del content["values"]["lattices"]  # as in weights of earlier versions
    else:
        content["values"]["lattices"] = lattices
    write_weights(path, content)
    with pytest.raises(UserError, match="units of the data, or with wrong ones; delete the record of the trial"):
        harness.load_flow(tmp_path, trial.id)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda test: test[:, :, :3], r"shape \(12, 1, 3, 4\); expected \(N, 1, 4, 4\)"),
        (lambda test: test[0], r"expected \(N, 1, 4, 4\)"),
        (lambda test: test + 0.005, r"0\.005 is not a multiple"),
        (lambda test: test + 0.5, "0.5 is not a multiple of the step 1 from 0"),
        (lambda test: test + 4, "the 5 levels are 0 to 4"),
        (lambda test: test * np.nan, "not finite"),
    ],
)
def test_events_that_the_data_cannot_have_are_refused(trained, tmp_path, change, words):
    splits, trial, _, _ = trained("image")
    with pytest.raises(UserError, match=words):
        harness.load_flow(tmp_path, trial.id).log_prob(change(splits.test))


def test_what_cannot_be_loaded_is_said(trained, tmp_path, monkeypatch):
    _, trial, record, candidate = trained("image")

    def refused(words, name=trial.id):
        with pytest.raises(UserError, match=words) as caught:
            harness.load_flow(tmp_path, name)
        assert "\n" not in str(caught.value)

    refused("no trial has the id 'toy-butterfly-s'; did you mean toy-butterfly", name="toy-butterfly-s")
    refused("a trial of kind tuning keeps no weights; name one of kind density", name=candidate.id)
    changed = {"layers/butterfly.py": "0" * 12, "harness/training": "0" * 12, "csrc": "0"}
    write_record(tmp_path / "records", replace(record, environment={"sources": changed}))
    now = {"layers/butterfly.py": "1" * 12, "harness/training": "1" * 12, "csrc": "1"}
    monkeypatch.setattr("harness.execution.trained.Sources", lambda: SimpleNamespace(of=lambda trial: now))
    refused(r"as layers/butterfly\.py changed; restore that source, or run")
    for room in ("flows", "harness/pipeline"):
        now = changed | {room: "1" * 12}
        refused(f"as {room} is new; restore that source")
    failed = replace(record, rows=[record.rows[0] | {"audit": "failed", "audit_reason": "made up"}])
    write_record(tmp_path / "records", failed)
    with pytest.warns(UserWarning, match="failed its audit, .*: made up"):
        harness.load_flow(tmp_path, trial.id)
    (tmp_path / "weights" / f"{trial.id}.pt").unlink()
    write_record(tmp_path / "records", record)
    refused("no such file; delete the record of the trial .* run the suite again")
    write_record(tmp_path / "records", replace(record, status="diverged", reason="NaN at step 2", rows=[]))
    refused("has left no weights")
    (tmp_path / "records" / f"{trial.id}.json").unlink()
    refused("has left no weights; .* status")


@pytest.mark.parametrize("where", ["layer", "data"])
def test_third_party_code_is_imported_only_if_asked_to(trained, tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("open('ran', 'w').close()\nraise ValueError('it ran')\n")
    _, trial, record, _ = trained("image")
    values = trial.model_dump(mode="json")
    values["data"]["name"] = "digits"
    values[where] |= {"layer": "mine.py:Mine"} if where == "layer" else {"name": "mine.py:Mine"}
    named = DensityTrial.model_validate(values)
    plan = Plan.load(tmp_path).model_copy(update={"trials": (named,)})
    plan.save(tmp_path)
    environment = {"sources": {"layers/butterfly.py": "0" * 12}}
    about = {"id": named.id, "trial": named.model_dump(mode="json"), "environment": environment, "arrays": None}
    write_record(tmp_path / "records", replace(record, **about))
    with pytest.raises(UserError, match=r"needs mine\.py:Mine, .* give third_party=True"):
        harness.load_flow(tmp_path, named.id)
    assert not Path("ran").exists()
    with pytest.raises(UserError, match="it ran"):
        harness.load_flow(tmp_path, named.id, third_party=True)
    run = tmp_path / "out" / "run"  # as moved with the folder above it, and loaded from another one
    shutil.copytree(tmp_path, run, ignore=shutil.ignore_patterns("mine.py", "ran", "out"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="it ran"):
        harness.load_flow(run, named.id, third_party=True)


def test_the_example_of_the_documentation_runs(trained, tmp_path, capsys):
    _, trial, _, _ = trained("image")
    (code,) = re.findall(r"```python\n(from harness import load_flow\n.*?)```", PAGE.read_text(), re.S)
    code, count = re.subn(r"load_flow\(.*\)", f"load_flow({str(tmp_path)!r}, {trial.id!r})", code)
    exec(code, {})
    assert count == 1 and capsys.readouterr().out.startswith("(16, 1, 4, 4) -")


def test_the_default_dtype_of_the_caller_does_not_matter(trained, tmp_path):
    splits, trial, *_ = trained("image")
    flow = harness.load_flow(tmp_path, trial.id)
    expected = flow.sample(4), flow.log_prob(splits.test)
    seen = set()
    torch.set_default_dtype(torch.float64)
    hook = register_module_forward_pre_hook(lambda *_: seen.add(torch.get_default_dtype()))
    try:
        flow = harness.load_flow(tmp_path, trial.id)
        assert {value.dtype for value in flow.flow.parameters()} == {torch.float32}
        assert (flow.sample(4) == expected[0]).all() and (flow.log_prob(splits.test) == expected[1]).all()
        assert torch.get_default_dtype() == torch.float64 and seen == {torch.float32}, "a layer may make tensors"
    finally:
        hook.remove()
        torch.set_default_dtype(torch.float32)
