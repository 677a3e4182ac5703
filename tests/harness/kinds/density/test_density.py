"""A density trial from data to record, on a toy data set, and layers that change their parameters in training."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from toys import density_trial

import harness.kinds.density.run
from flows import Glow
from harness.core.records import read_record, write_record
from harness.core.settings import DataRef, LayerRef
from harness.core.trial import IDENTITY, ORIGIN, OUTCOME, TRIALS
from harness.datasets import Splits, Store, find_dataset
from harness.evaluation.evaluation import evaluate
from harness.kinds.density.run import below_floor
from harness.kinds.density.run import run as run_density
from harness.kinds.density.weights import load_flow
from harness.pipeline.models import build_flow
from harness.pipeline.pipeline import Pipeline
from layers import LAYERS
from layers.conv1x1 import Conv1x1
from layers.scale import Scale

STORE = Store(None, Path("no-cache"), offline=True)
NEW_SPLITS = ({"split": 1}, {"split": 1, "keep_test": True})
TRAINING = {"steps": 6, "batch_size": 16, "evaluate_every": 3, "evaluation_batch": 5}


def toy(kind="image"):
    draw = np.random.default_rng(0)
    shape, top, levels = {"image": ((1, 4, 4), 5, 5), "sequence": ((2, 8), 200, None)}[kind]
    parts = [draw.binomial(top - 1, 0.3, (n, *shape)).astype(np.int16) for n in (40, 12, 12)]
    return Splits(*parts, levels=levels, description="binomial toy")


@pytest.fixture
def data(use_data):
    """Put the toy in the place of every data set; return the function that puts others there."""
    use_data(toy())
    return use_data


def trial(layer="conv1x1", options=(), training=(), flow=(), **settings):
    data, layer = DataRef(label="toy", name="toy", **settings), LayerRef(row=layer, layer=layer, options=options)
    return density_trial(layer, data, flow, TRAINING | dict(training))


def run(trial, out):
    seen = []
    record = run_density(trial, None, out, lambda done, text: seen.append((done, text)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen) and all(text for _, text in seen)
    assert read_record(write_record(out / "records", record)) == record
    return record


@pytest.mark.parametrize("kind", ["image", "sequence"])
def test_a_record_has_every_measure(kind, data, tmp_path):
    splits = toy(kind)
    data(splits)
    record = run(trial(training={"draws": 2}), tmp_path)
    (row,) = record.rows
    assert record.status == "ok" and record.audit["verdict"] == row["audit"] == "passed"
    assert set(row) == set(TRIALS["density"].columns) - {*IDENTITY, *OUTCOME, *ORIGIN, "repetition"}
    assert all(math.isfinite(row[name]) for name in ("bits_per_dim", "nats_per_dim", "standard_error", "condition"))
    assert row["median"] <= row["worst"] and row[row["unit"]] <= row["worst"] and row["test_events"] == len(splits.test)
    assert row["validation"] == min(record.curves["validation"]) and row["steps"] == 6
    total = row["prior_nats_per_dim"] + row["log_det_nats_per_dim"] + row["preprocessing_nats_per_dim"]
    assert total == pytest.approx(row["nats_per_dim"], abs=1e-12)
    assert row["importance_weighted"] <= row[row["unit"]] and row["draws"] == 2 and row["passes"] == 6
    assert row["parameters"] > row["masked_free"] > 0 and not row["below_floor"]
    unit = "bits_per_dim" if kind == "image" else "nats_per_dim"
    assert (row["unit"], row["floor"] == 0) == (unit, kind == "image")
    assert "2 dequantisation draws" in record.notes["draws"]
    arrays = np.load(tmp_path / "records" / record.arrays)
    assert np.array_equal(arrays["data"], splits.test)
    assert arrays["samples"].shape == splits.test.shape and arrays["samples"].dtype == splits.test.dtype


def test_a_trial_is_reproducible(data, tmp_path):
    records, arrays = [], []
    for _ in range(2):
        record = run(trial(), tmp_path)
        first, last = record.curves.pop("seconds")
        assert 0 < first < last <= record.rows[0].pop("train_seconds") and record.rows[0].pop("audit_seconds") > 0
        records.append(record)
        arrays.append((tmp_path / "records" / record.arrays).read_bytes())
        torch.rand(7)  # a trial does not depend on the global generator
    assert records[0] == records[1] and arrays[0] == arrays[1]


def test_the_saved_weights_give_the_same_likelihood(data, tmp_path):
    """The averaged weights are saved, and the file alone reproduces the likelihood bit for bit."""
    averaged = trial("butterfly", training={"ema": "separate", "draws": 2}, options={"shared": True})
    record = run(averaged, tmp_path)
    flow = load_flow(averaged, tmp_path / "weights" / f"{averaged.id}.pt")
    pipeline = Pipeline(toy(), averaged.data)
    again = evaluate(flow, pipeline, "test", 2, averaged.training.evaluation_batch, averaged.seed)
    row = record.rows[0]
    assert (again.bits_per_dim, again.importance_weighted) == (row["bits_per_dim"], row["importance_weighted"])
    assert all(bool(module.initialised) for module in flow.modules() if hasattr(module, "initialised"))
    assert (record.audit["verdict"], row["steps"], row["passes"]) == ("passed", 6, 12)
    assert "averaged layer" in record.notes["ema"] and len(record.curves["average_log_det"]) == 2


def test_the_test_split_is_read_after_training(data, tmp_path, monkeypatch):
    """No choice follows; the audit reads validation again, and nearest neighbours are among the training examples."""
    reads, raw = [], Pipeline.raw
    monkeypatch.setattr(Pipeline, "raw", lambda self, split: reads.append(split) or raw(self, split))
    run(trial(), tmp_path)
    first = reads.index("test")
    assert "validation" in reads[:first] and set(reads[first:]) == {"test", "train", "validation"}


def test_a_record_describes_its_data_and_notes_seen_test_events_and_cut_events(data, tmp_path):
    """Filtered data have no resolution floor, and the record states the reason."""
    record = run(trial(), tmp_path)
    assert record.notes["data"] == "binomial toy" and record.notes["splits"] == "40 train, 12 validation, 12 test"
    assert not {"floor", "steps", "checksum"} & set(record.notes) and record.rows[0]["floor"] == 0
    facts = {"no_floor": "a band-pass filter moves it", "checksum": "12ab", "steps": ((0.0005, "NU"), (0.05, "mmHg"))}
    data(replace(toy("sequence"), **facts))
    record = run(trial(), tmp_path)
    notes = {"floor": "a band-pass filter moves it", "checksum": "12ab", "steps": "0.0005 NU, 0.05 mmHg"}
    assert notes.items() <= record.notes.items()
    assert record.rows[0]["floor"] is None and record.rows[0]["below_floor"] is False
    splits = toy("sequence")
    data(replace(splits, test=splits.train[:12]))
    notes = run(trial(), tmp_path).notes
    assert notes["data warning"] == "12 of 12 test events (100.0%) equal training events"
    data(splits)
    assert "data warning" not in run(trial(), tmp_path).notes
    # Events are squeezed to 4x1x37, and the prime 37 is above the largest radix.
    draw = np.random.default_rng(0)
    data(Splits(*(draw.integers(0, 5, (n, 1, 2, 74)).astype(np.int16) for n in (40, 12, 12)), 5, description="toy"))
    record = run(trial("butterfly"), tmp_path)
    assert (record.status, record.audit["verdict"]) == ("ok", "passed")
    cut = "D = 148 = 2 * 2 * 37 is cut into parts of 147, 1: the prime 37 is above 31; parts do not mix"
    assert record.notes["layer"] == cut
    assert "layer" not in run(trial("conv1x1"), tmp_path).notes


def test_a_hundred_unpermuted_samples_and_a_hundred_test_images_are_saved(data, tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    parts = [draw.integers(0, 5, (count, 1, 4, 4), dtype=np.int16) for count in (40, 12, 150)]
    data(Splits(*parts, levels=5, description=""))
    pipeline = Pipeline(Splits(*parts, levels=5, description=""), DataRef(label="x", name="x", permute=3))

    def sample(self, n, generator):
        return pipeline.prepare(pipeline.raw("test")[:n], torch.Generator().manual_seed(0))[0]

    monkeypatch.setattr(Glow, "sample", sample)  # a flow that returns the permuted data
    record = run(trial(permute=3), tmp_path)
    arrays = np.load(tmp_path / "records" / record.arrays)
    assert np.array_equal(arrays["data"], parts[2][:100]) and np.array_equal(arrays["samples"], parts[2][:100])


def test_divergence_is_an_outcome_with_its_curves(data, tmp_path):
    record = run(trial(training={"steps": 60, "evaluate_every": 2, "learning_rate": 1e4, "warmup": 0}), tmp_path)
    assert record.status == "diverged" and "at step" in record.reason
    assert record.curves["step"] and None in record.curves["validation"]
    assert record.rows[0]["parameters"] > 0 and record.rows[0]["bits_per_dim"] is None and record.arrays is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"layer": "butterfly", "options": {"levels": 9}}, "butterfly"), ({"flow": {"levels": 5}}, "levels = 5")],
)
def test_a_flow_that_cannot_be_built_is_unsupported(settings, reason, data, tmp_path):
    record = run(trial(**settings), tmp_path)
    assert record.status == "unsupported" and reason in record.reason and not record.rows


def test_raw_lattice_values_end_below_the_floor(data, tmp_path):
    """Without noise the density of points on a plane of the lattice is unbounded."""
    splits = toy()
    flat = [np.repeat(part[:, :, :1], 4, axis=2) for part in splits.parts().values()]
    data(replace(splits, train=flat[0], validation=flat[1], test=flat[2]))
    training = {"steps": 150, "evaluate_every": 50, "learning_rate": 1e-1}
    record = run(trial(training=training, dequantise=False, allow_unbounded=True), tmp_path)
    (row,) = record.rows
    assert record.status == "ok" and row["bits_per_dim"] < 0 and row["below_floor"]
    assert row["audit"] == record.audit["verdict"] == "failed"
    assert "below the resolution floor 0" in row["audit_reason"] and "Dequantise" in row["audit_reason"]
    (row,) = run(trial(training=training), tmp_path).rows
    assert row["bits_per_dim"] > 0 and not row["below_floor"] and row["audit"] == "passed"


def test_the_floor_allows_three_standard_errors_of_dequantised_data():
    def fault(mean, error, noisy=True, floor=-5.0):
        evaluation = SimpleNamespace(nats_per_dim=mean, standard_error=error)
        return below_floor(evaluation, SimpleNamespace(unit="nats_per_dim", has_noise=noisy), floor)

    assert fault(-5.02, 0.01) is None and fault(-5.01, 0.01, noisy=False, floor=None) is None
    assert fault(math.nan, math.nan, noisy=False) is None
    assert all(map(fault, (-5.04, -5.01, -math.inf), (0.01, math.nan, math.nan))) and fault(-5.01, 0.01, noisy=False)


def test_a_measure_that_is_not_finite_is_none_with_its_reason(data, tmp_path, monkeypatch):
    values = torch.tensor([[1.0, math.inf, 2.0]])
    lost = {"bits_per_dim": math.inf, "nats_per_dim": math.inf, "standard_error": math.nan, "values": values}
    monkeypatch.setattr(harness.kinds.density.run, "evaluate", lambda *args: replace(evaluate(*args), **lost))
    record = run(trial(), tmp_path)
    assert record.rows[0]["bits_per_dim"] is None and record.rows[0]["standard_error"] is None
    assert record.notes["bits_per_dim"] == "not finite for 1 of 3 test values"
    assert record.notes["standard_error"] == "the value is nan"
    assert record.rows[0]["median"] == 2 and record.rows[0]["worst"] is None
    assert record.notes["worst"] == "the value is inf" and "median" not in record.notes
    assert record.rows[0]["audit"] == "failed" and "not finite" in record.rows[0]["audit_reason"]


def test_a_layer_that_cannot_invert_gives_no_samples(data, tmp_path, monkeypatch):
    def refuse(self, y):
        raise NotImplementedError("no inverse")

    monkeypatch.setattr(Conv1x1, "inverse", refuse)
    record = run(trial(), tmp_path)
    assert record.status == "ok" and record.arrays is None and "no inverse" in record.notes["samples"]
    assert record.rows[0]["audit"] == "failed" and record.rows[0]["inverse_error"] is None
    json.dumps(record.audit, allow_nan=False)


def test_a_layer_that_changes_settings_of_torch_fails_its_audit(data, tmp_path, monkeypatch):
    def build(*args):
        torch.autograd.set_detect_anomaly(True)
        return build_flow(*args)

    monkeypatch.setattr(harness.kinds.density.run, "build_flow", build)
    (row,) = run(trial(), tmp_path).rows
    assert row["audit"] == "failed" and "anomaly mode: False -> True" in row["audit_reason"]
    assert not torch.is_anomaly_enabled()


def test_a_trial_trains_on_its_new_split_and_states_the_share_of_test(tmp_path):
    plain = trial()
    plain = plain.model_copy(update={"data": DataRef(label="digits", name="digits")})
    drawn = [plain.model_copy(update={"data": plain.data.model_copy(update=each)}) for each in NEW_SPLITS]
    records = [run(each, tmp_path / str(number)) for number, each in enumerate([plain, *drawn])]
    assert [record.rows[0]["test_share"] for record in records] == [None, 250 / 1797, 0]
    tested = [np.load(tmp_path / str(n) / "records" / record.arrays)["data"] for n, record in enumerate(records)]
    expected = [find_dataset("digits").loaded(STORE, {}, each.data.new_split).test for each in (plain, *drawn)]
    assert all(np.array_equal(values, splits[: len(values)]) for values, splits in zip(tested, expected, strict=True))
    assert not np.array_equal(tested[0], tested[1]) and np.array_equal(tested[0], tested[2])
    assert len({each.id for each in (plain, *drawn)}) == 3
    assert "split 1: the events of train, validation and test pooled" in records[1].notes["data"]


class Thawed(Scale):
    """Train a scale that was counted as frozen."""

    def __init__(self, shape):
        super().__init__(shape)
        self.log_scale.requires_grad_(False)

    def initialise(self, x):
        self.log_scale.requires_grad_(True)


class Replaced(Scale):
    """Put a new parameter in the place of the trained one."""

    def train(self, mode=True):
        if not mode:
            self.log_scale = nn.Parameter(self.log_scale.detach().clone())
        return super().train(mode)


class Versioned(Scale):
    """Keep a version in the state_dict: no fault."""

    def get_extra_state(self):
        return {"version": 2}

    def set_extra_state(self, state):
        assert state == {"version": 2}


class Rebound(Scale):
    """Limit the weights by an assignment to .data: no fault of a training, as the optimiser follows."""

    def forward(self, x):
        self.log_scale.data = self.log_scale.data.clamp(-3, 3)
        return super().forward(x)


@pytest.fixture
def tried(data, tmp_path, monkeypatch):
    """Return a function that trains a class as the layer of a trial, and returns the record."""

    def run_one(layer, **training):
        monkeypatch.setitem(LAYERS, "tried", layer)
        return run(trial("tried", training=training), tmp_path)

    return run_one


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (Thawed, "and Adam received"),
        (Replaced, "parameters replaced, frozen or thawed in training, which Adam does not follow: levels.0"),
    ],
)
def test_parameters_that_adam_does_not_train_as_counted_fail_the_audit(layer, reason, tried):
    (row,) = tried(layer).rows
    assert row["audit"] == "failed" and reason in row["audit_reason"]


def test_what_adam_received_is_what_is_counted(tried):
    counts = [tried(layer).rows[0]["parameters"] for layer in (Thawed, Scale)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("ema", ["none", "all", "separate"])
@pytest.mark.parametrize("layer", [Scale, Versioned, Rebound])
def test_idioms_without_effect_change_no_training(layer, ema, tried):
    record, plain = tried(layer, ema=ema), tried(Scale, ema=ema)
    assert record.rows[0]["audit"] == "passed", record.rows[0]["audit_reason"]
    assert json.dumps(record.curves["validation"]) == json.dumps(plain.curves["validation"])
    assert torch.tensor(record.rows[0]["bits_per_dim"]).isfinite()
