"""The audit fails couplings, activation normalisation, priors and pre-processing with a fault."""

import math
from copy import deepcopy

import pytest
import torch
from variants import output

from flows import ActNorm, AffineCoupling, Contraction, Glow
from flows.baselines.residual import LipSwish, ThreeConvolutions
from flows.contraction import Series
from flows.preprocess import Preprocessing
from harness.audit.jacobians import NotTriangular, coupled_log_det, norm_bound


def replace(flow, name, make):
    """Replace a part of the first step by `make(part)`."""
    step = flow.levels[0].steps[0]
    setattr(step, name, make(getattr(step, name)))
    return flow


def test_kept_entries_must_not_depend_on_others_in_their_derivative():
    def function(x):
        first, second = x.unbind(1)
        return torch.stack([first + slope * (second - second.detach()), 2 * second], 1)

    x = torch.randn(3, 2, 4, dtype=torch.float64)
    slope = 0.0
    assert coupled_log_det(function, x, torch.Generator()).tolist() == pytest.approx([4 * math.log(2)] * 3)
    slope = 1.0
    with pytest.raises(NotTriangular, match="kept entries depend"):
        coupled_log_det(function, x, torch.Generator())


def touch_kept(self, x, y, log_det):
    """Let the kept half depend on the transformed one."""
    return torch.cat([y[:, : self.kept] + 1e-3 * x[:, -1:], y[:, self.kept :]], dim=1), log_det


def mix_moved(self, x, y, log_det):
    """Let transformed entries depend on each other, with the same determinant."""
    return torch.cat([y[:, :-1], y[:, -1:] + 1e-3 * x[:, -2:-1]], dim=1), log_det


def recast(cls):
    """Return a function that copies a part, with its weights, as another class."""

    def make(part):
        part = deepcopy(part)
        part.__class__ = cls
        return part

    return make


@pytest.mark.parametrize(
    ("name", "cls", "reason"),
    [
        ("coupling", output(AffineCoupling, lambda self, x, y, log_det: (y, -log_det)), "coupling: log-det is"),
        (
            "coupling",
            output(AffineCoupling, lambda self, x, y, log_det: (y, log_det.index_fill(0, torch.tensor(1), math.nan))),
            "coupling: log-det is nan",
        ),
        ("coupling", output(AffineCoupling, touch_kept), "coupling: the moved entries do not move one by one"),
        ("coupling", output(AffineCoupling, mix_moved), "coupling: the moved entries do not move one by one"),
        ("actnorm", output(ActNorm, lambda self, x, y, log_det: (y, self.log_scale.sum())), "actnorm: log-det is"),
    ],
)
def test_faulty_parts_fail(name, cls, reason, make_data, make_flow, audited):
    data = make_data()
    result = audited(replace(make_flow(data), name, recast(cls)), data)
    assert result.verdict == "failed"
    assert any(text.startswith(f"level0/step0/{reason}") for text in result.reasons), result.reasons


class ForgetsATerm(Glow):
    def forward(self, x):
        z, log_det = super().forward(x)
        return z, log_det - self.levels[0].steps[0].actnorm(x.new_zeros(1, *self.level_shapes[0]))[1]


class UnnormalisedPrior(Glow):
    def log_prob(self, x):
        return super().log_prob(x) + 0.5 * self.dim * math.log(2 * math.pi)


class Coarse(Glow):
    """Round the log-likelihood to tens of nats in float32."""

    def log_prob(self, x):
        value = super().log_prob(x)
        return value if x.dtype == torch.float64 else (value / 10).round() * 10


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (ForgetsATerm, "flow: log-det is"),
        (UnnormalisedPrior, "flow: log-likelihood is"),
        (Coarse, "log-likelihood in float32 is off by"),
    ],
)
def test_a_faulty_flow_fails(cls, reason, make_data, make_flow, audited):
    data = make_data()
    result = audited(recast(cls)(make_flow(data)), data)
    assert result.verdict == "failed"
    assert any(text.startswith(reason) for text in result.reasons), result.reasons


@pytest.mark.parametrize(("limit", "count"), [(0, 1), (256, 2)], ids=["sum of parts", "whole Jacobian"])
def test_a_missing_term_is_found_by_the_sum_of_parts_and_by_the_jacobian(
    limit, count, monkeypatch, make_data, make_flow, audited
):
    monkeypatch.setattr("harness.audit.audit.WHOLE_LIMIT", limit)
    data = make_data()
    result = audited(recast(ForgetsATerm)(make_flow(data)), data)
    assert sum(text.startswith("flow: log-det is") for text in result.reasons) == count, result.reasons


@pytest.mark.parametrize("preprocessing", ["scale", "logit"])
def test_preprocessing_without_its_jacobian_fails(preprocessing, make_data, make_flow, audited):
    data = make_data(preprocessing=preprocessing)
    flow = make_flow(data)
    data.preprocessing.__class__ = output(Preprocessing, lambda self, v, x, log_det: (x, torch.zeros_like(log_det)))
    result = audited(flow, data)
    assert any(text.startswith("preprocessing: log-det is") for text in result.reasons), result.reasons


def test_a_pipeline_without_the_jacobian_fails(monkeypatch, make_data, make_flow, audited):
    data = make_data()
    flow, prepare = make_flow(data), data.prepare
    monkeypatch.setattr(data, "prepare", lambda *args: (prepare(*args)[0], torch.zeros(len(args[0]))))
    result = audited(flow, data)
    assert any("returned with the data is off" in text for text in result.reasons), result.reasons


def test_a_bound_of_other_weights_than_those_applied_is_seen_by_the_stretch_of_a_sample():
    torch.manual_seed(0)
    module = Contraction(ThreeConvolutions((2, 4, 4), 8, 0.9, LipSwish, first=False), Series(2), Series(2)).double()
    for parameter in module.parameters():
        parameter.data.mul_(20)  # so that the limit is reached
    module.eval().requires_grad_(False)
    x, operators = torch.randn(2, 2, 4, 4, dtype=torch.float64), module.operators()
    assert norm_bound(module, x, torch.Generator().manual_seed(0))[1] == []
    module.operators = lambda: [(name, 0.1 * weight, *rest) for name, weight, *rest in operators]
    [fault] = norm_bound(module, x, torch.Generator().manual_seed(0))[1]
    assert fault.startswith("at a sample the Jacobian stretches by")
