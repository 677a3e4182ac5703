"""The audit: it passes what is right, at every kind of event, and names what is wrong."""

import json
import math
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch

import harness.audit.layer_choice
from flows import ActNorm, AffineCoupling, Glow, Preprocessing
from harness.audit.audit import audit
from harness.audit.conditioning import condition_number
from harness.audit.events import Events
from harness.audit.jacobians import NotTriangular, coupled_log_det
from harness.audit.layer_choice import chosen_layers, smaller
from harness.audit.stochastic_log_det import NotDifferentiable, stochastic_log_det
from harness.core.layer_classes import resolve_layer
from harness.core.settings import DataRef
from harness.datasets.base import Splits
from harness.evaluation.evaluation import evaluate
from harness.pipeline.pipeline import Pipeline
from harness.timing.operations import perturb
from layers import LAYERS
from layers.base import push_identity
from layers.conv1x1 import Conv1x1

IMAGE, SEQUENCE = (1, 8, 8), (2, 32)
OPTIONS = {"woodbury": {"rank_channels": 2, "rank_space": 2}, "butterfly": {"levels": 3}}


def pipeline(shape=IMAGE, test_events=8, **options):
    draw = np.random.default_rng(0)
    top = 17 if len(shape) == 3 else 1024
    sizes = (32, 8, test_events)
    train, validation, test = (draw.integers(0, top, (n, *shape), dtype=np.int16) for n in sizes)
    levels = 17 if len(shape) == 3 else None
    splits = Splits(train, validation, test, levels=levels, description="random")
    return Pipeline(splits, DataRef(label="random", name="random", **options))


def make_flow(data, make_layer=Conv1x1, make_mixer=None, noise=0.3, **options):
    """A flow away from its initial weights, on which many a fault could not be seen."""
    settings = {"levels": 2, "steps": 1, "width": 4} | options
    flow = Glow(data.shape, make_layer, make_mixer, **settings)
    flow.initialise(data.prepare(data.raw("train")[:], torch.Generator().manual_seed(0))[0])
    perturb(flow, noise, torch.Generator().manual_seed(0))
    return flow


def audited(flow, data, make_layer=None, reload=None, batch=4):
    """Evaluate the test split and audit that, as a trial does."""
    return audit(flow, data, evaluate(flow, data, "test", 1, batch, 0), make_layer, reload)


def replace(flow, name, make):
    """Put `make(part)` in the place of a part of the first step."""
    step = flow.levels[0].steps[0]
    setattr(step, name, make(getattr(step, name)))
    return flow


@pytest.mark.parametrize("shape", [IMAGE, SEQUENCE], ids=["image", "sequence"])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_passes_every_layer(name, shape, build_layer):
    data = pipeline(shape)
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
    ],
    ids=["learned prior, permuted", "glow, logit", "sequence, raw"],
)
def test_passes_every_backbone(options, data_options):
    data = pipeline(**data_options)
    result = audited(make_flow(data, **options), data)
    assert result.verdict == "passed", result.reasons
    assert result.logdet_error < 1e-9


def test_repeats_itself():
    data = pipeline()
    one, other = (audited(make_flow(data), data).record() for _ in range(2))
    assert one == other


class PerPosition(Conv1x1):
    """The log-det of one position: the factor n is missing."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det / self.positions


class Transposed(Conv1x1):
    """An inverse that is one for orthogonal weights only."""

    def inverse(self, y):
        return torch.einsum("oc,nohw->nchw", self.matrix(), y)


class Gives(Conv1x1):
    """An inverse that raises."""

    def inverse(self, y):
        raise NotImplementedError


class Bent(Conv1x1):
    """Linear on unit vectors and at zero, where the matrix is read off, and nowhere else."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y + 1e-3 * x * x * (x - 1), log_det


def singular(smallest):
    """A dense 1x1 of random singular vectors with one singular value far below the others."""

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
        (PerPosition, 0.3, "level0/step0/layer: log-det is"),
        (Transposed, 0.3, "level0/step0/layer: x -> z -> x is off"),
        (Gives, 0.3, "level0/step0/layer: x -> z -> x is off by inf"),
        (Bent, 0.3, "level0/step0/layer: it is not the linear map of its own matrix"),
        (singular(1e-8), 0.0, "level0/step0/layer: condition 1"),
    ],
    ids=["factor n", "transposed inverse", "no inverse", "not linear", "nearly singular"],
)
def test_fails_layers(make_layer, noise, reason):
    data = pipeline()
    result = audited(make_flow(data, make_layer, noise=noise, levels=1), data)
    assert result.verdict == "failed"
    assert any(text.startswith(reason) for text in result.reasons), result.reasons
    json.dumps(result.record(), allow_nan=False)


def test_a_singular_layer_is_a_finding_and_not_a_crash():
    data = pipeline()
    result = audited(make_flow(data, singular(0.0), noise=0.0), data)
    assert result.verdict == "failed"
    zero = make_flow(data, singular(0.5), noise=0.0)
    zero.levels[0].steps[0].layer.weight.data.zero_()
    result = audited(zero, data)
    assert result.verdict == "failed" and result.condition == math.inf
    assert result.record()["condition"] is None
    json.dumps(result.record(), allow_nan=False)


MUTANTS = Path(__file__).parents[1] / "mutants.py"


def mutant(name):
    return resolve_layer(f"{MUTANTS.name}:{name}", MUTANTS.parent)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
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
def test_fails_what_check_layer_refuses(name, reason):
    """Each as a trial would meet it: validated in eval(), trained on, evaluated in one large batch."""
    data = pipeline((2, 8, 8), test_events=150)
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


def test_single_events_are_counted_and_named():
    data = pipeline((2, 8, 8), test_events=150)
    flow = make_flow(data, levels=1)
    result = audited(flow, data, reload=lambda: deepcopy(flow), batch=150)
    assert result.verdict == "passed", result.reasons
    assert (result.events, result.test_events, result.samples) == (150, 150, 150)
    assert 0 < result.batch_error < 1e-5 and result.reload_error == 0
    assert result.inverse_failures == result.sample_failures == result.batch_failures == 0
    assert 0 < result.sample_error < 1e-3
    # One event beyond what float32 can give back: a gate of exp(-33) at that event alone.
    found = Events(data, evaluate(flow, data, "test", 1, 150, 0))
    odd = int((found.events == 77).nonzero())
    found.inputs[odd] = 1e9
    errors = found.round_trips(flow)
    assert errors.worst_event == 77 and errors.beyond(1e-3) >= 1


def test_a_large_split_is_sampled(monkeypatch):
    monkeypatch.setattr("harness.audit.events.MOST_EVENTS", 20)
    data = pipeline(test_events=50)
    result = audited(make_flow(data), data)
    assert (result.events, result.test_events) == (20, 50)
    monkeypatch.setattr("harness.audit.events.SECONDS", 0.0)
    assert audited(make_flow(data), data).events == 8, "the first batch is examined whatever the time"


@pytest.mark.parametrize(("work", "how"), [(1e12, "exactly, by slogdet"), (0.0, "a stochastic check")])
def test_a_wrong_log_det_of_a_large_layer_is_found_at_its_own_shape(work, how, monkeypatch):
    """Its stand-in is right, so only a check at the true size can see it; large is from D = 257 on, to save time."""

    class HalvedWhenLarge(Conv1x1):
        def forward(self, x):
            y, log_det = super().forward(x)
            return y, log_det / 2 if self.dim > 256 else log_det

    for module in ("layer_choice", "linear", "audit"):
        monkeypatch.setattr(f"harness.audit.{module}.DENSE_LIMIT", 256)
    monkeypatch.setattr(harness.audit.layer_choice, "STAND_IN_LIMIT", 128)
    monkeypatch.setattr(harness.audit.layer_choice, "LARGE_WORK_LIMIT", work)
    monkeypatch.setattr("harness.audit.audit.SAMPLES", 2)
    data = pipeline((2, 24, 24), test_events=2)

    def build(layer, shape):
        return type(layer)(shape)

    for cls, verdict in ((Conv1x1, "passed"), (HalvedWhenLarge, "failed")):
        flow = make_flow(data, cls, levels=1)
        result = audited(flow, data, build)
        assert result.verdict == verdict, result.reasons
        assert how in result.large_layers["level0/step0/layer"]
        assert (result.smallest_fault is None) == bool(work)
        assert result.smallest_fault is None or 1e-6 < result.smallest_fault < 200
    assert any(text.startswith("level0/step0/layer: log-det is") for text in result.reasons)


def test_a_stochastic_log_det_agrees_with_slogdet():
    """For every layer within the allowance; where all singular values are 1, exactly."""
    for name in ("conv1x1", "periodic", "butterfly", "woodbury", "orthogonal"):
        layer = LAYERS[name]((3, 8, 8), **OPTIONS.get(name, {})).double().eval()
        perturb(layer, 0.3, torch.Generator().manual_seed(0))
        truth = float(torch.linalg.slogdet(push_identity(layer)).logabsdet)
        found = stochastic_log_det(layer, torch.Generator().manual_seed(0))
        assert not found.excludes(truth)
        assert found.excludes(truth + found.allowance * 1.5 + 1e-3), "and nothing much larger is allowed"
        assert found.condition <= condition_number(push_identity(layer)) * (1 + 1e-6)


class WrongGradient(Conv1x1):
    """Its gradient by x is that of W^T."""

    def forward(self, x):
        y, log_det = super().forward(x)
        other = torch.einsum("co,nchw->nohw", self.matrix(), x)
        return y.detach() + other - other.detach(), log_det


def test_a_stochastic_log_det_needs_the_transpose():
    layer = WrongGradient((3, 4, 4)).double()
    perturb(layer, 0.3, torch.Generator().manual_seed(0))
    with pytest.raises(NotDifferentiable, match="not the transpose of forward"):
        stochastic_log_det(layer, torch.Generator().manual_seed(0))


class FlippedSign(AffineCoupling):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, -log_det


class TouchesKept(AffineCoupling):
    """The kept half sees the moved one."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return torch.cat([y[:, : self.kept] + 1e-3 * x[:, -1:], y[:, self.kept :]], dim=1), log_det


class MixesMoved(AffineCoupling):
    """The moved entries depend on each other, with the same determinant."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return torch.cat([y[:, :-1], y[:, -1:] + 1e-3 * x[:, -2:-1]], dim=1), log_det


def test_values_that_stay_must_stay_in_their_derivative_too():
    def function(x):
        first, second = x.unbind(1)
        return torch.stack([first + slope * (second - second.detach()), 2 * second], 1)

    x = torch.randn(3, 2, 4, dtype=torch.float64)
    slope = 0.0
    assert coupled_log_det(function, x, torch.Generator()).tolist() == pytest.approx([4 * math.log(2)] * 3)
    slope = 1.0
    with pytest.raises(NotTriangular, match="kept entries depend"):
        coupled_log_det(function, x, torch.Generator())


class NotANumber(AffineCoupling):
    """Its log-det is NaN for one event alone."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, torch.where(torch.arange(len(x)) == 1, math.nan, log_det)


class ForgetsPositions(ActNorm):
    def forward(self, x):
        return super().forward(x)[0], self.log_scale.sum()


def recast(cls):
    """A copy of a part as another class, with its weights."""

    def make(part):
        part = deepcopy(part)
        part.__class__ = cls
        return part

    return make


@pytest.mark.parametrize(
    ("name", "cls", "reason"),
    [
        ("coupling", FlippedSign, "level0/step0/coupling: log-det is"),
        ("coupling", NotANumber, "level0/step0/coupling: log-det is nan"),
        ("coupling", TouchesKept, "level0/step0/coupling: the moved entries do not move one by one"),
        ("coupling", MixesMoved, "level0/step0/coupling: the moved entries do not move one by one"),
        ("actnorm", ForgetsPositions, "level0/step0/actnorm: log-det is"),
    ],
)
def test_fails_other_parts(name, cls, reason):
    data = pipeline()
    result = audited(replace(make_flow(data), name, recast(cls)), data)
    assert result.verdict == "failed"
    assert any(text.startswith(reason) for text in result.reasons), result.reasons


class ForgetsATerm(Glow):
    def forward(self, x):
        z, log_det = super().forward(x)
        return z, log_det - self.levels[0].steps[0].actnorm(x.new_zeros(1, *self.level_shapes[0]))[1]


class UnnormalisedPrior(Glow):
    def log_prob(self, x):
        return super().log_prob(x) + 0.5 * self.dim * math.log(2 * math.pi)


class Coarse(Glow):
    """In float32 its log-likelihood is rounded to tenths of a nat."""

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
def test_fails_the_flow_as_a_whole(cls, reason):
    data = pipeline()
    result = audited(recast(cls)(make_flow(data)), data)
    assert result.verdict == "failed"
    assert any(text.startswith(reason) for text in result.reasons), result.reasons


@pytest.mark.parametrize(("limit", "found"), [(0, 1), (256, 2)], ids=["sum of parts", "whole Jacobian"])
def test_a_lost_term_is_found_twice(limit, found, monkeypatch):
    monkeypatch.setattr("harness.audit.audit.WHOLE_LIMIT", limit)
    data = pipeline()
    result = audited(recast(ForgetsATerm)(make_flow(data)), data)
    assert sum(text.startswith("flow: log-det is") for text in result.reasons) == found, result.reasons


class NoJacobian(Preprocessing):
    def forward(self, v):
        x, log_det = super().forward(v)
        return x, torch.zeros_like(log_det)


@pytest.mark.parametrize("preprocessing", ["scale", "logit"])
def test_fails_preprocessing_without_its_jacobian(preprocessing):
    data = pipeline(preprocessing=preprocessing)
    flow = make_flow(data)
    data.preprocessing.__class__ = NoJacobian
    result = audited(flow, data)
    assert any(text.startswith("preprocessing: log-det is") for text in result.reasons), result.reasons


def test_fails_a_pipeline_that_loses_the_jacobian(monkeypatch):
    data = pipeline()
    flow, prepare = make_flow(data), data.prepare
    monkeypatch.setattr(data, "prepare", lambda *args: (prepare(*args)[0], torch.zeros(len(args[0]))))
    result = audited(flow, data)
    assert any("returned with the data is off" in text for text in result.reasons), result.reasons


def test_too_many_layers_are_sampled_with_both_ends(monkeypatch):
    flow = Glow(IMAGE, Conv1x1, levels=2, steps=10, width=2)
    layers = dict(flow.linear_layers())
    assert chosen_layers(layers, 0) == set(layers)
    monkeypatch.setattr(harness.audit.layer_choice, "WORK_LIMIT", 7 * 64**3)
    chosen = chosen_layers(layers, 0)
    ends = {f"level{level}/step{step}/layer" for level in (0, 1) for step in (0, 9)}
    assert ends < chosen < set(layers)
    assert sum(layers[path].dim ** 3 for path in chosen) <= 7 * 64**3
    assert chosen == chosen_layers(layers, 0) != chosen_layers(layers, 1)


def as_large(monkeypatch, limit, work=0.0):
    monkeypatch.setattr(harness.audit.layer_choice, "DENSE_LIMIT", limit)
    monkeypatch.setattr(harness.audit.layer_choice, "LARGE_WORK_LIMIT", work)
    monkeypatch.setattr(harness.audit.layer_choice, "STAND_IN_LIMIT", limit)


def build(layer, shape):
    return type(layer)(shape, **OPTIONS.get(layer.registered_name, {}))


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_a_large_layer_is_audited_smaller(name, monkeypatch, build_layer):
    as_large(monkeypatch, 20)
    options = OPTIONS.get(name, {})
    layer = build_layer(name, (4, 8, 8), **options).double().eval()
    perturb(layer, 0.3, torch.Generator().manual_seed(0))
    small, reason = smaller(layer, lambda _, shape: build_layer(name, shape, **options))
    assert small.shape == (4, 2, 2), reason
    assert not small.training, "what is audited is the map in eval()"
    assert all(value.dtype == torch.float64 for value in small.parameters())
    if name == "conv1x1":
        assert torch.equal(small.matrix(), layer.matrix()), "its weights fit and were not carried over"


def test_a_fault_of_a_large_layer_is_found_on_the_smaller(monkeypatch):
    as_large(monkeypatch, 20)
    data = pipeline()
    assert audited(make_flow(data), data, build).verdict == "passed"
    result = audited(make_flow(data, PerPosition), data, build)
    assert any(text.startswith("level0/step0/layer: log-det is") for text in result.reasons)


def test_what_cannot_be_audited_is_said(monkeypatch):
    as_large(monkeypatch, 40)
    data = pipeline()
    result = audited(make_flow(data), data)
    assert result.verdict == "incomplete"
    assert set(result.not_audited) == {"level0/step0/layer"} and result.audited_layers == 1


@pytest.mark.parametrize("limit", [1024, 8], ids=["exact", "power iteration"])
def test_condition_number(limit, monkeypatch):
    monkeypatch.setattr("harness.audit.conditioning.SVD_LIMIT", limit)
    u, _, v = torch.linalg.svd(torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    values = torch.linspace(1, 5, 64, dtype=torch.float64)
    values[0], values[-1] = 1e-3, 10.0
    assert condition_number(u * values @ v) == pytest.approx(1e4, rel=1e-3)
    values[0] = 0.0
    assert condition_number(torch.diag(values)) == math.inf
    assert condition_number(torch.full((64, 64), math.nan)) == math.inf
