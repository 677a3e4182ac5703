"""The probe of a trial that trains a flow: what it measures, and how the parts of a trial add up."""

from dataclasses import asdict

import numpy as np
import pytest

import harness.kinds.density.run
from harness.audit.events import SMALL_BATCH
from harness.core.discovery import sibling
from harness.core.records import blank_record, read_record, write_record
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.core.trial import TRIALS
from harness.datasets.base import Splits
from harness.kinds.density.probe import TrainingCost, run
from harness.kinds.density.trial import DensityTrial, Tuning

SIZES = {"train": 40, "validation": 90, "test": 70}
TUNING = Tuning(seed=100, steps=100, candidates=((("training.learning_rate", 0.01),),))


@pytest.fixture
def data(use_data):
    draw = np.random.default_rng(0)
    parts = [draw.binomial(4, 0.3, (n, 1, 4, 4)).astype(np.uint8) for n in SIZES.values()]
    use_data(Splits(*parts, levels=5, description="toy"))


def trial(**changes):
    training = {"steps": 1000, "batch_size": 16, "evaluate_every": 300, "evaluation_batch": 32, "draws": 2}
    return DensityTrial(
        suite="toy",
        profile="smoke",
        data=DataRef(label="toy", name="toy"),
        layer=LayerRef(row="conv1x1", layer="conv1x1"),
        flow=FlowSettings(levels=1, steps=1, width=4) if "flow" not in changes else changes["flow"],
        training=TrainingSettings(**training),
        seed=0,
        tuning=TUNING,
    )


def test_a_probe_measures_parts_of_the_trial(data, tmp_path, monkeypatch):
    seen = []
    fit = harness.kinds.density.probe.fit
    monkeypatch.setattr(
        harness.kinds.density.probe,
        "fit",
        lambda flow, pipeline, *rest: (
            seen.append({name: len(pipeline.raw(name)) for name in SIZES}) or fit(flow, pipeline, *rest)
        ),
    )
    planned = trial()
    record = run(planned, None, tmp_path, lambda done, text: None)
    assert read_record(write_record(tmp_path, record)) == record and record.id == planned.id and record.status == "ok"
    cost = {name: value for name, (value,) in record.curves.items()}
    assert cost.keys() == asdict(TrainingCost(*range(7))).keys() and all(value > 0 for value in cost.values())
    assert (cost["validation"], cost["test"]) == (90, 70), "the splits of the trial, of which the probe reads a part"
    assert seen[0] == {"train": 40, "validation": SMALL_BATCH, "test": SMALL_BATCH}, "what lies between timed steps"
    assert list(tmp_path.iterdir()) == [tmp_path / f"{planned.id}.json"], "no weights, no samples"


def test_a_probe_of_a_slow_flow_evaluates_few_events(data, tmp_path, monkeypatch):
    module, seen = harness.kinds.density.probe, {}
    evaluate = module.evaluate
    monkeypatch.setattr(module, "_step_seconds", lambda *_: 10.0)
    monkeypatch.setattr(
        module,
        "evaluate",
        lambda flow, pipeline, split, *rest: (
            seen.update({split: len(pipeline.raw(split))}) or evaluate(flow, pipeline, split, *rest)
        ),
    )
    record = run(trial(), None, tmp_path, lambda done, text: None)
    assert seen == {"test": 16, "validation": 16}, "as many events as are trained on in ten seconds"
    assert record.curves["test"] == [70] and record.curves["step"] == [10.0]


def test_a_probe_has_the_status_of_a_trial_that_cannot_be_built(data, tmp_path):
    record = run(trial(flow=FlowSettings(levels=4, steps=1, width=4)), None, tmp_path, lambda done, text: None)
    assert record.status == "unsupported" and "levels = 4" in record.reason and record.curves == {}


def test_the_parts_add_up():
    cost = TrainingCost(setup=1.0, step=0.1, example=0.01, batches=0.2, round_trip=0.5, validation=90, test=70)
    planned = trial()
    (candidate,) = planned.candidates
    record = blank_record(planned, "ok", None)
    record.curves = {name: [value] for name, value in asdict(cost).items()} | {"memory": [1e6]}
    # setup, steps, four validations and two draws of the test split, and the audit, each comparison of it limited
    expected = 1 + 1000 * 0.1 + (4 * 90 + 2 * 70) * 0.01 + 70 * 0.2 + 70 * 0.5
    for kind, of in ((planned.kind, planned), (candidate.kind, candidate)):
        estimate = sibling(TRIALS[kind], "probe").seconds(of, record)
        assert estimate == pytest.approx(expected if of is planned else 1 + 10 + (90 + 90) * 0.01 + 90 * 0.2 + 90 * 0.5)
    slow = TrainingCost(1.0, 0.1, 0.01, batches=2.0, round_trip=5.0, validation=90, test=70)
    assert slow.seconds(planned) == pytest.approx(1 + 100 + 5 + 60 + 60)
