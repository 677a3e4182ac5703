"""The audit passes correct flows on images and sequences, and names the fault of incorrect ones."""

import json
import math
from copy import deepcopy

import pytest
import torch
from variants import output

from flows import Glow, coupled
from harness.audit.audit import audit
from harness.audit.events import Events
from harness.evaluation.evaluation import evaluate
from harness.timing.operations import perturb
from layers import LAYERS
from layers.conv1x1 import Conv1x1

IMAGE, SEQUENCE = (1, 8, 8), (2, 32)
OPTIONS = {"woodbury": {"rank_channels": 2, "rank_space": 2}, "butterfly": {"levels": 3}}


@pytest.mark.parametrize("shape", [IMAGE, SEQUENCE], ids=["image", "sequence"])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer_passes(name, shape, build_layer, make_data, make_flow, audited):
    data = make_data(shape)
    flow = make_flow(data, lambda event: build_layer(name, event, **OPTIONS.get(name, {})), Conv1x1)
    before = deepcopy(flow.state_dict())
    result = audited(flow, data)
    assert result.verdict == "passed", result.reasons
    assert result.logdet_error < 1e-9
    assert result.inverse_error < 1e-3 and result.inverse_error_float64 < 1e-9
    assert 0 < result.precision_error < 1e-5
    assert result.audited_layers == result.linear_layers == 4
    assert 1 < result.condition < 1e4 and result.condition_path in dict(flow.linear_layers())
    assert all(torch.equal(value, before[key]) for key, value in flow.state_dict().items())
    json.dumps(result.record(), allow_nan=False)


@pytest.mark.parametrize(
    ("options", "data_options"),
    [
        ({"prior": "learned"}, {"permute": 0}),
        ({"coupling": "glow"}, {"preprocessing": "logit"}),
        ({"coupling": "sequence"}, {"dequantise": False}),
        ({"coupling": "attention"}, {}),
    ],
    ids=["learned prior, permuted", "glow, logit", "sequence, raw", "attention"],
)
def test_every_backbone_passes(options, data_options, make_data, make_flow, audited):
    data = make_data(**data_options)
    result = audited(make_flow(data, **options), data)
    assert result.verdict == "passed", result.reasons
    assert result.logdet_error < 1e-9


@pytest.mark.parametrize("shape", [(5, 1), (8, 1)])
def test_vectors_pass_in_a_backbone_of_one_level(shape, make_data, make_flow, audited):
    data = make_data(shape)
    result = audited(make_flow(data, LAYERS["butterfly"], Conv1x1, levels=1), data)
    assert result.verdict == "passed", result.reasons
    assert result.logdet_error < 1e-9 and result.audited_layers == 2


def test_the_audit_is_deterministic(make_data, make_flow, audited):
    data = make_data()
    first, second = (audited(make_flow(data), data).record() for _ in range(2))
    assert first == second


class Raises(Conv1x1):
    """Raise an exception in the inverse."""

    def inverse(self, y):
        raise NotImplementedError


# Linear only on unit vectors and at zero, from which the matrix is computed.
NONLINEAR = output(Conv1x1, lambda self, x, y, log_det: (y + 1e-3 * x * x * (x - 1), log_det))


def singular(smallest):
    """Return a constructor of dense 1x1 convolutions with one singular value far below the others."""

    class Singular(Conv1x1):
        def __init__(self, shape):
            super().__init__(shape, parameterisation="dense")

    def build(event):
        layer = Singular(event)
        u, s, v = torch.linalg.svd(torch.randn(event[0], event[0], dtype=torch.float64))
        s[-1] = smallest * s[0]
        layer.weight.data = (u * s @ v).float()
        return layer

    return build


@pytest.mark.parametrize(
    ("make_layer", "noise", "reason"),
    [
        (Raises, 0.3, "level0/step0/layer: x -> z -> x is off by inf"),
        (NONLINEAR, 0.3, "level0/step0/layer: y is not W x + b of its own matrix for event"),
        (singular(1e-8), 0.0, "level0/step0/layer: condition 1"),
    ],
    ids=["no inverse", "not linear", "nearly singular"],
)
def test_faulty_layers_fail(make_layer, noise, reason, make_data, make_flow, audited):
    data = make_data()
    result = audited(make_flow(data, make_layer, noise=noise, levels=1), data)
    assert result.verdict == "failed"
    assert any(text.startswith(reason) for text in result.reasons), result.reasons
    json.dumps(result.record(), allow_nan=False)


def test_a_singular_layer_fails_without_an_exception(make_data, make_flow, audited):
    data = make_data()
    result = audited(make_flow(data, singular(0.0), noise=0.0), data)
    assert result.verdict == "failed"
    zero = make_flow(data, singular(0.5), noise=0.0)
    zero.levels[0].steps[0].layer.weight.data.zero_()
    result = audited(zero, data)
    assert result.verdict == "failed" and result.condition == math.inf
    assert result.record()["condition"] is None
    json.dumps(result.record(), allow_nan=False)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ForgottenPositions", "level0/step0/layer: log-det is"),
        ("TransposedInverse", "level0/step0/layer: x -> z -> x is off"),
        ("ChunkedLogDet", "log-likelihood depends on the batch: for 150 of 150 test events"),
        ("FlatteredLogDet", "log-likelihood depends on the batch: for 150 of 150 test events"),
        ("ShrunkEvents", "log-likelihood depends on the batch: for 142 of 150 test events"),
        ("CentredBatch", "log-likelihood depends on the batch"),
        ("WrongInEval", "level0/step0/layer: log-det is"),
        ("CachedLogDet", "level0/step0/layer: log-det is"),
        ("AdaptsInEval", "evaluation changes the state of the flow: levels.0.steps.0.layer.bias"),
        ("FrozenInEval", "the flow rebuilt from its saved weights has a different log-likelihood"),
        ("ClampedInverse", "level0/step0/layer: y -> x -> y is off"),
        ("RepeatedInverse", "level0/step0/layer: y -> x -> y is off"),
        ("WrongWhenLarge", "level0/step0/layer: log-det is"),
    ],
)
def test_mutants_fail_in_a_trained_flow(name, reason, mutant, make_data, make_flow, audited):
    """As in a trial: validate in eval(), change the weights, evaluate in one large batch."""
    data = make_data((2, 8, 8), test_events=150)
    flow = make_flow(data, mutant(name), levels=1)
    flow.eval()(data.prepare(data.raw("validation")[:])[0])
    perturb(flow.train(), 0.1, torch.Generator().manual_seed(1))

    def reload():
        torch.manual_seed(1)
        fresh = Glow(data.shape, mutant(name), levels=1, steps=1, width=4)
        fresh.load_state_dict(flow.state_dict())
        return fresh

    result = audited(flow, data, reload=reload, batch=150)
    assert result.verdict == "failed"
    assert any(text.startswith(reason) for text in result.reasons), result.reasons
    json.dumps(result.record(), allow_nan=False)


def test_failing_events_are_counted_and_the_worst_is_named(make_data, make_flow, audited, monkeypatch):
    # Plain PyTorch's couplings: kernels give equal bits in every batch, as does everything on smaller images.
    monkeypatch.setitem(coupled.WIDEST, "convolutions", 0)
    data = make_data((2, 16, 16), test_events=150)
    flow = make_flow(data, levels=1)
    result = audited(flow, data, reload=lambda: deepcopy(flow), batch=150)
    assert result.verdict == "passed", result.reasons
    assert (result.events, result.test_events, result.samples) == (150, 150, 150)
    assert 0 < result.batch_error < 1e-5 and result.reload_error == 0
    assert result.inverse_failures == result.sample_failures == result.batch_failures == 0
    assert 0 < result.sample_error < 1e-3
    # One event that float32 cannot invert: a gate of exp(-33) at that event alone.
    events = Events(data, evaluate(flow, data, "test", 1, 150, 0))
    odd = int((events.events == 77).nonzero())
    events.inputs[odd] = 1e9
    errors = events.round_trips(flow)
    assert errors.worst_event == 77 and errors.beyond(1e-3) >= 1


def test_a_large_split_is_sampled(monkeypatch, make_data, make_flow, audited):
    monkeypatch.setattr("harness.audit.events.MOST_EVENTS", 20)
    data = make_data(test_events=50)
    result = audited(make_flow(data), data)
    assert (result.events, result.test_events) == (20, 50)
    monkeypatch.setattr("harness.audit.events.SECONDS", 0.0)
    assert audited(make_flow(data), data).events == 8, "the first batch is examined whatever the time"


def test_an_evaluation_that_did_not_compare_the_state_cannot_be_audited(make_data, make_flow):
    data = make_data()
    flow = make_flow(data)
    with pytest.raises(ValueError, match="did not compare the state"):
        audit(flow, data, evaluate(flow, data, "test", 1, 4, 0, compare=False))
