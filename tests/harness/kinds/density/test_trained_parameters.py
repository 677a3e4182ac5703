"""A trial fails whose trained parameters are not those that were counted, and one with an extra state runs."""

import json

import pytest
import torch
from torch import nn
from toys import density_trial, toy_splits

from harness.kinds.density.run import run
from layers import LAYERS
from layers.scale import Scale


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
def recorded(use_data, tmp_path, monkeypatch):
    use_data(toy_splits())

    def run_one(layer, **training):
        monkeypatch.setitem(LAYERS, "tried", layer)
        training = {"steps": 6, "batch_size": 16, "evaluate_every": 3, "evaluation_batch": 5} | training
        trial = density_trial("tried", training=training)
        return run(trial, None, tmp_path, lambda done, text: None)

    return run_one


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (Thawed, "and Adam received"),
        (Replaced, "parameters replaced, frozen or thawed in training, which Adam does not follow: levels.0"),
    ],
)
def test_parameters_that_adam_does_not_train_as_counted_fail_the_audit(layer, reason, recorded):
    (row,) = recorded(layer).rows
    assert row["audit"] == "failed" and reason in row["audit_reason"]


def test_what_adam_received_is_what_is_counted(recorded):
    counts = [recorded(layer).rows[0]["parameters"] for layer in (Thawed, Scale)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("ema", ["none", "all", "separate"])
@pytest.mark.parametrize("layer", [Scale, Versioned, Rebound])
def test_idioms_without_effect_change_no_training(layer, ema, recorded):
    record, plain = recorded(layer, ema=ema), recorded(Scale, ema=ema)
    assert record.rows[0]["audit"] == "passed", record.rows[0]["audit_reason"]
    assert json.dumps(record.curves["validation"]) == json.dumps(plain.curves["validation"])
    assert torch.tensor(record.rows[0]["bits_per_dim"]).isfinite()
