"""The audit compares what linear layers do to each event, as evaluated, with their audited maps."""

import json
from functools import partial

import pytest
import torch
import variants

from harness.audit.applied import audited_map
from harness.audit.audit import audit, audit_candidate
from harness.audit.stochastic_log_det import NotDifferentiable
from harness.core.settings import TrainingSettings
from harness.evaluation.evaluation import evaluate, evaluated_inputs
from harness.timing.operations import perturb
from harness.training.training import fit
from layers.base import push_identity
from layers.conv1x1 import Conv1x1
from layers.periodic import Periodic

TRAINING = TrainingSettings(steps=8, batch_size=16, evaluate_every=4, learning_rate=0.05)


def tilted(x):
    """Return whether more than 56 % of an event's entries are positive: a few random events, no unit vector."""
    return (x > 0).flatten(1).double().mean(1) > 0.56


class ShrinksSomeEvents(Conv1x1):
    """Scale events of a rare kind by 0.3, which neither the log-det nor a small random sample shows."""

    def _gain(self, x):
        return torch.where(tilted(x), 0.3, 1.0).to(x).reshape(-1, *[1] * (x.ndim - 1))

    def forward(self, x):
        y, log_det = super().forward(x)
        return y * self._gain(x), log_det

    def inverse(self, y):
        x = super().inverse(y)
        return x / self._gain(x)


output = partial(variants.output, Conv1x1)


def log_det_of_rare_events(self, x, y, log_det):
    return y, log_det + 2.0 * self.dim * tilted(x).to(x) if tilted(x).any() else log_det


class KeptByVersion(Conv1x1):
    """Keep W in no_grad as long as the version of the weights is equal, which `.data` does not raise."""

    kept = (None, None)

    def matrix(self):
        if torch.is_grad_enabled():
            return super().matrix()
        key = (self.lower._version, self.log_s._version, self.lower.dtype)
        if self.kept[0] != key:
            self.kept = (key, super().matrix().clone())
        return self.kept[1]

    def forward(self, x):
        w = self.matrix()
        y = torch.einsum("oc,ncp->nop", w, x.flatten(2)).reshape(x.shape)
        return y, self.positions * torch.linalg.slogdet(w).logabsdet

    def inverse(self, y):
        return torch.linalg.solve(self.matrix(), y.flatten(2)).reshape(y.shape)


@pytest.fixture
def candidate():
    """Return a function that audits a flow as a candidate of a tuning is, on the test split."""

    def run(flow, data, reported=None):
        if reported is None:
            reported = evaluate(flow, data, "validation", 1, 150, 0).bits_per_dim
        evaluation = evaluate(flow, data, "test", 1, 150, 0)
        return audit_candidate(flow, data, evaluation, lambda layer, shape: type(layer)(shape), reported)

    return run


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (ShrinksSomeEvents, "y is not W x + b of its own matrix for event"),
        (output(log_det_of_rare_events), "log-det has shape (150,), not () in an evaluated batch of 150"),
        (output(lambda self, x, y, log_det: (y, log_det + 0.01 * self.dim * (x.dtype == torch.float32))), "log-det is"),
        (output(lambda self, x, y, log_det: (y - y.mean(0) * (len(x) > 100), log_det)), "y is not W x + b of its own"),
    ],
)
def test_faults_at_evaluated_events_fail(layer, reason, make_data, make_flow, audited, candidate):
    data = make_data((2, 8, 8), test_events=150)
    flow = make_flow(data, layer, levels=1)
    for result in (audited(flow, data, batch=150), candidate(flow, data)):
        assert result.verdict == "failed"
        assert any(text.startswith(f"level0/step0/layer: {reason}") for text in result.reasons), result.reasons
        json.dumps(result.record(), allow_nan=False)


def test_the_worst_event_is_named_and_failing_ones_are_counted(make_data, make_flow, audited):
    data = make_data((2, 8, 8), test_events=150)
    flow = make_flow(data, ShrinksSomeEvents, levels=1)
    result = audited(flow, data, batch=64)
    x = torch.cat([x for x, _ in evaluated_inputs(data, "test", 64, 0, torch.float32)])
    value = next(value for path, _, value in flow.trace(x) if path.endswith("layer"))
    rare = (value > 0).flatten(1).double().mean(1) > 0.56
    assert 0 < result.applied_failures == int(rare.sum()) < 20
    assert bool(rare[result.applied_worst]) and result.applied_error > 0.1
    assert result.applied_path == "level0/step0/layer"


def test_a_candidate_of_a_correct_flow_passes_by_a_part_of_the_audit(make_data, make_flow, candidate):
    data = make_data((2, 8, 8), test_events=150)
    result = candidate(make_flow(data), data)
    assert result.verdict == "passed", result.reasons
    assert (result.events, result.audited_layers, result.samples) == (150, 2, 0)
    assert 0 < result.applied_error < 1e-6 and result.logdet_error < 1e-9 and 0 < result.inverse_error < 1e-3
    assert result.condition > 1 and result.validation_error == 0


@pytest.mark.parametrize(
    ("make_layer", "fault"), [(Conv1x1, False), (KeptByVersion, True)], ids=["correct", "values kept"]
)
def test_the_reported_validation_value_is_that_of_the_kept_weights(
    make_layer, fault, make_data, make_flow, audited, candidate
):
    data = make_data((2, 8, 8), test_events=20)
    flow = make_flow(data, make_layer, levels=1)
    training = fit(flow, data, TRAINING, 0, lambda done, text: None)
    reported = training.best_likelihood
    evaluation = evaluate(flow, data, "test", 1, 8, 0)
    for result in (audit(flow, data, evaluation, validation=reported), candidate(flow, data, reported)):
        assert (result.validation_error > 1e-3) == fault
        assert any(text.startswith("validation: the reported") for text in result.reasons) == fault, result.reasons


def test_a_map_of_products_is_that_of_the_matrix():
    """Above D = 4096 no matrix is formed."""
    layer = Periodic((2, 4, 4)).double()
    perturb(layer, 0.3, torch.Generator().manual_seed(0))
    x = torch.randn(5, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        y, log_det = layer(x)
        maps = [
            audited_map(layer, log_det, matrix, None, torch.Generator().manual_seed(2))
            for matrix in (None, push_identity(layer))
        ]
    assert torch.allclose(maps[0].pulled, maps[1].pulled, atol=1e-12)
    y[3, 0] += 1e-3
    for exact in maps:
        errors = exact.errors(x, y)
        size = x[3].norm() + y[3].norm() + exact.offset.norm()
        assert errors[[0, 1, 2, 4]].max() < 1e-14
        assert 0.3 < errors[3] * size / (1e-3 * 4) < 2, "the norm of the error is 4 entries of 1e-3"


def test_a_layer_of_unknown_matrix_without_gradient_has_no_map():
    layer = output(lambda self, x, y, log_det: (y.detach(), log_det))((2, 4)).double()
    with pytest.raises(NotDifferentiable, match="no gradient"):
        audited_map(layer, torch.zeros(()), None, None, torch.Generator())
