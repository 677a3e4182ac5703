"""Records of tuned trainings with made-up likelihoods."""

from types import SimpleNamespace

import pytest

from harness.core.records import blank_record


@pytest.fixture
def use_data(monkeypatch):
    """Return a function that puts arrays in the place of every data set."""

    def use(splits):
        stand_in = SimpleNamespace(loaded=lambda store, options, new: splits)
        monkeypatch.setattr("harness.kinds.density.run.find_dataset", lambda name: stand_in)

    return use


@pytest.fixture
def recorded():
    """Return a function that makes the record of a trial, of a likelihood in bits per dimension and other measures."""

    def record(trial, value, **measures):
        made = blank_record(trial, "ok", None)
        chosen = {"candidate": 1, "candidates": 2, "chosen": '{"training.learning_rate": 0.01}'}
        likelihood = {"unit": "bits_per_dim", "bits_per_dim": value, "nats_per_dim": value, "below_floor": False}
        others = {"audit": "passed", "parameters": 10, "masked_free": 9, "train_seconds": 1.0}
        made.rows = [chosen | likelihood | others | measures]
        return made

    return record
