"""Baselines as rows of a suite: named, planned, trained, audited, marked; and the references that are no flow."""

import json
from copy import deepcopy

import numpy as np
import pytest
import torch
from toys import audited, density_trial, initialised, run_quietly, toy_pipeline, write_suite

from flows.baselines import BASELINES, build_baseline
from flows.baselines.mixture import Mixture
from flows.contraction import Contraction, SpectralConvolution
from flows.masked import MaskedBlock
from harness.audit.audit import audit
from harness.audit.jacobians import operator_norm
from harness.cli.parser import main
from harness.core.errors import SuiteError
from harness.core.provenance.sources import Sources
from harness.core.settings import LayerRef, TrainingSettings
from harness.evaluation.evaluation import evaluate
from harness.kinds.density.weights import load_flow, weights_path
from harness.planning.settle import load_suite, settle
from harness.training.training import fit

ESTIMATED = ["iresnet", "residual_flow", "idensenet"]
DENSITIES = ["gaussian", "mixture"]  # no flows

SUITE = """
suite: small
kind: density
layers: {conv1x1: {}}
flows: FLOWS
profiles:
  smoke:
    flow: {levels: 1, steps: 1, width: 4}
    training: {steps: 2, batch_size: 8, evaluate_every: 1}
    datasets: {digits: EXTRA}
"""


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def write(folder, flows="{maf: {}, iresnet: {}}", extra="{}"):
    return write_suite(folder, SUITE.replace("FLOWS", flows).replace("EXTRA", extra))


def fitted(name, data, **training):
    flow = build_baseline(name, data.shape, 2, 1, 6, 0, {})
    settings = TrainingSettings(**{"steps": 6, "batch_size": 16, "evaluate_every": 3} | training)
    return flow, fit(flow, data, settings, 0, lambda done, text: None)


@pytest.mark.parametrize("name", [name for name in BASELINES if name not in DENSITIES])
def test_baselines_are_trained_and_audited_like_the_backbone(name):
    data = toy_pipeline()
    flow, training = fitted(name, data)
    assert training.steps_done == 6 and training.passes == 6
    before = deepcopy(flow.state_dict())
    result = audited(flow, data)
    assert result.verdict == "passed", result.reasons
    assert (result.estimate_error is not None) == (name in ESTIMATED)
    assert name not in ESTIMATED or 0 < result.lipschitz < 1
    assert (result.estimate_bias or 0) > 0 if name == "iresnet" else not result.estimate_bias
    assert all(torch.equal(before[key], value) for key, value in flow.state_dict().items())
    json.dumps(result.record(), allow_nan=False)


@pytest.mark.parametrize("ema", ["all", "separate"])
def test_averaged_weights_keep_the_lipschitz_bound(ema):
    data = toy_pipeline()
    flow, training = fitted("residual_flow", data, steps=20, ema=ema, ema_decay=0.8, learning_rate=0.02)
    assert training.passes == 20  # one pass per step even with "separate", as no layer is under test
    assert audited(flow, data).verdict == "passed"


@pytest.mark.parametrize("name", ESTIMATED)
def test_an_estimated_likelihood_states_its_standard_error(name):
    data = toy_pipeline()
    flow, _ = fitted(name, data)
    evaluation = evaluate(flow, data, "test", 1, 5, 0)
    assert torch.equal(evaluation.values, evaluate(flow, data, "test", 1, 5, 0).values)
    others = [evaluate(flow, data, "test", 1, 5, seed) for seed in range(1, 3)]
    assert 0 < evaluation.estimate_error < 0.5 and all(other.estimate_error > 0 for other in others)
    # With the same dequantisation noise, estimates differ by their error alone: `estimate_error`.
    x, _ = data.prepare(data.raw("test")[:], torch.Generator().manual_seed(0))
    with torch.no_grad():
        many = flow.log_prob(x.repeat(60, 1, 1, 1), torch.Generator().manual_seed(0)).view(60, len(x))
    spread = many.mean(1).std().item() / (data.dim * np.log(2)) / np.sqrt(2)  # of the mean of two estimates
    assert evaluation.estimate_error == pytest.approx(spread, rel=0.6)
    assert np.isnan(evaluate(flow, data, "test", 2, 5, 0).importance_weighted)


class TruncatedBlock(Contraction):
    """One term of the series: biased."""

    def forward(self, x, generator=None):
        with torch.enable_grad():
            start = x.detach().requires_grad_()
            g = self.net(start, self.net.weights())
            signs = torch.randint(0, 2, x.shape, generator=generator).to(x) * 2 - 1
            (product,) = torch.autograd.grad(g, start, signs)
        return x + g.detach(), (product * signs).flatten(1).sum(1)


class ForgottenScale(MaskedBlock):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det - self.map.gate(self.raw(x)[:, 0, 1])


class Unbounded(SpectralConvolution):
    def normalised(self):
        return 1.5 * super().normalised()


def retype(flow, old, new):
    for module in flow.modules():
        if type(module) is old:
            module.__class__ = new
    return flow


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("residual_flow", SpectralConvolution, Unbounded, "beyond its limit 0.98"),
        ("idensenet", SpectralConvolution, Unbounded, "which proves no inverse"),
        ("maf", MaskedBlock, ForgottenScale, "step0/autoregressive: log-det is"),
    ],
)
def test_the_audit_catches_each_fault_of_a_baseline(name, old, new, reason):
    data = toy_pipeline()
    flow = initialised(build_baseline(name, data.shape, 2, 1, 6, 0, {}), data, 0.4)
    for module in flow.modules():
        if type(module) is SpectralConvolution:
            module.weight.data.mul_(4)
    assert audited(flow, data).verdict == "passed"
    faulty = retype(flow, old, new)
    result = audited(faulty, data)
    assert result.verdict == "failed" and any(reason in text for text in result.reasons), result.reasons


@pytest.mark.parametrize(("shape", "kernel"), [((3, 4, 5), 3), ((4, 9, 11), 3), ((300, 1, 1), 1), ((1, 1, 1), 1)])
def test_the_operator_norm_of_the_audit_equals_the_norm_of_the_dense_matrix(shape, kernel):
    dim = int(np.prod(shape))
    weight = torch.randn(7, shape[0], kernel, kernel, dtype=torch.float64)
    units = torch.eye(dim, dtype=torch.float64).view(dim, *shape)
    matrix = torch.nn.functional.conv2d(units, weight, padding=kernel // 2).flatten(1)
    assert operator_norm(weight, shape) == pytest.approx(torch.linalg.matrix_norm(matrix, 2).item(), rel=1e-6)
    assert operator_norm(0 * weight, shape) == 0 and operator_norm(weight / 0, shape) == np.inf


def test_the_audit_catches_a_biased_estimate():
    """Use weights near the identity, whose traces are large and vary little."""
    data = toy_pipeline()
    flow = initialised(build_baseline("residual_flow", data.shape, 2, 1, 6, 0, {}), data)
    with torch.no_grad():
        for module in flow.modules():
            if isinstance(module, SpectralConvolution):
                module.weight.mul_(0.1)
                centre = module.weight.shape[-1] // 2
                module.weight[:, :, centre, centre] += torch.eye(*module.weight.shape[:2])
    assert audited(flow, data).verdict == "passed"
    faulty = retype(flow, Contraction, TruncatedBlock)
    result = audited(faulty, data)
    assert result.verdict == "failed" and "the mean of its estimated log-dets is" in result.reasons[0]
    assert any(text.startswith("flow: the mean") for text in result.reasons)


def test_a_suite_names_baselines_by_label(tmp_path):
    plan, trials = settle(load_suite(write(tmp_path)), "smoke", "cpu").plan()
    assert plan.rows == ("conv1x1", "maf", "iresnet")
    mapping = "{maf: {}, wide: {baseline: maf, flow: {width: 9}, options: {hidden_layers: 2}}}"
    suite = load_suite(write(tmp_path, mapping, "{flows: {wide: {flow: {steps: 3}}}}"))
    plan, trials = settle(suite, "smoke", "cpu", only=["layer=maf,wide"], settings=["flows.maf.flow.levels=2"]).plan()
    assert [trial.layer.row for trial in trials] == ["maf", "wide"]
    assert [trial.flow.levels for trial in trials] == [2, 1]
    assert trials[1].flow.width == 9 and trials[1].flow.steps == 3
    assert trials[1].layer == LayerRef(row="wide", layer="maf", options={"hidden_layers": 2}, baseline=True)
    sources = Sources()
    assert "flows/baselines/maf.py" in sources.of(trials[0])
    assert not any("baselines" in path and "__init__" not in path for path in sources.of(plan.trials[0]))


@pytest.mark.parametrize(
    ("flows", "extra", "message"),
    [
        ("{mav: {}}", "{}", "no baseline is called 'mav'; did you mean maf"),
        ("{conv1x1: {baseline: maf}}", "{}", "'conv1x1' is a row of layers already"),
        ("{maf: {flow: {mixer: none}}}", "{}", "flow.mixer: has no effect on a baseline"),
        ("{maf: {options: {hiden_layers: 2}}}", "{}", "did you mean hidden_layers"),
        ("{maf: {options: {hidden_layers: 0}}}", "{}", "hidden_layers = 0 is not allowed; use a whole number from 1"),
        ("{realnvp: {options: {blocks: -1}}}", "{}", "blocks = -1 is not allowed; use a whole number from 0"),
        ("{idensenet: {options: {depth: 0}}}", "{}", "depth = 0 is not allowed; use a whole number from 1"),
        ("{maf: {}}", "{flows: {iresnet: {}}}", "no row 'iresnet' under `flows`"),
        ("{iresnet: {flow: {levels: 4}}}", "{}", "one position cannot be squeezed; use fewer levels"),
    ],
)
def test_a_wrong_baseline_row_is_an_error_with_place_and_reason(tmp_path, flows, extra, message):
    with pytest.raises(SuiteError, match=message):
        settle(load_suite(write(tmp_path, flows, extra)), "smoke", "cpu").plan()


def test_a_density_that_is_no_flow_is_fitted_audited_as_far_as_it_can_be_and_restored(tmp_path):
    layer = LayerRef(row="mixture", layer="mixture", baseline=True, options={"components": [1, 3]})
    trial = density_trial(layer, "digits", training={"steps": 2, "batch_size": 4, "evaluate_every": 1})
    record = run_quietly(trial, tmp_path)
    (values,) = record.rows
    assert (record.status, values["audit"], values["steps"]) == ("ok", "passed", 1), record.audit["reasons"]
    assert values["inverse_error"] is values["condition"] is record.audit["sample_error"] is None, "it has no map"
    assert record.audit["events"] == 250 and record.audit["reload_error"] is not None
    assert record.audit["validation_error"] < 1e-6 and 0 < record.audit["precision_error"] < 1e-3
    assert record.notes["layer"].startswith("no flow") and trial.fault(record) is None
    assert values["masked_free"] in (1 + 64 + 64 * 65 // 2, 3 * (1 + 64 + 64 * 65 // 2))
    assert values["neighbour_distance"] > 0, "samples are drawn"
    restored = load_flow(trial, weights_path(trial, tmp_path))
    assert isinstance(restored, Mixture) and not restored.training
    again = run_quietly(trial, tmp_path)
    assert again.rows[0]["bits_per_dim"] == values["bits_per_dim"]


class HalfTheDensity(Mixture):
    """Twice the density for events in batches of more than eight."""

    def log_prob(self, x, generator=None):
        return super().log_prob(x) + 0.7 * (len(x) > 8)


def test_the_audit_catches_a_density_that_depends_on_the_batch():
    data = toy_pipeline()
    flow = build_baseline("gaussian", data.shape, 1, 1, 1, 0, {})
    training = fit(flow, data, TrainingSettings(steps=1), 0, lambda done, text: None)
    for cls, verdict in ((type(flow), "passed"), (HalfTheDensity, "failed")):
        flow.__class__ = cls
        result = audit(flow, data, evaluate(flow, data, "test", 1, 12, 0), training=TrainingSettings())
        assert result.verdict == verdict, result.reasons
    assert "depends on the batch" in result.reasons[0] and training.stopped_early


def test_a_listing_has_every_baseline(capsys):
    assert main(["list", "flows"]) == 0
    listing = capsys.readouterr().out
    assert all(name in listing for name in BASELINES) and "ICML 2019" in listing
