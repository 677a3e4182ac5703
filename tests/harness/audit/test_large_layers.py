"""The audit of layers too large or too many for their matrices, and its estimates."""

import math

import pytest
import torch
from variants import output

import harness.audit.linear
from flows import Glow
from harness.audit.linear import chosen_layers, factorised, log_det_and_condition, smaller, sparse_matrix
from harness.audit.stochastic_log_det import NotDifferentiable, stochastic_log_det
from harness.timing.operations import perturb
from layers import LAYERS
from layers.base import push_identity
from layers.chain import Chain
from layers.conv1x1 import Conv1x1
from layers.fixed import Fixed

OPTIONS = {"woodbury": {"rank_channels": 2, "rank_space": 2}, "butterfly": {"levels": 3}}


@pytest.mark.parametrize(("work", "how"), [(1e12, "exactly, by the LU"), (0.0, "a stochastic check")])
def test_a_wrong_log_det_is_found_at_the_true_shape_of_a_large_layer(
    work, how, monkeypatch, make_data, make_flow, audited
):
    """The smaller stand-in is correct, so only a check at the true shape detects it; above D = 256 is large here."""
    faulty = output(Conv1x1, lambda self, x, y, log_det: (y, log_det / 2 if self.dim > 256 else log_det))
    for module in ("linear", "audit"):
        monkeypatch.setattr(f"harness.audit.{module}.DENSE_LIMIT", 256)
    monkeypatch.setattr(harness.audit.linear, "STAND_IN_LIMIT", 128)
    monkeypatch.setattr("harness.audit.linear.MOST_WORK", work)
    monkeypatch.setattr("harness.audit.audit.SAMPLES", 2)
    data = make_data((2, 24, 24), test_events=2)
    for cls, verdict in ((Conv1x1, "passed"), (faulty, "failed")):
        flow = make_flow(data, cls, levels=1)
        result = audited(flow, data, lambda layer, shape: type(layer)(shape))
        assert result.verdict == verdict, result.reasons
        assert how in result.large_layers["level0/step0/layer"]
        assert (result.smallest_fault is None) == bool(work)
        assert result.smallest_fault is None or 1e-6 < result.smallest_fault < 200
    assert any(text.startswith("level0/step0/layer: log-det is") for text in result.reasons)


def test_a_stochastic_log_det_agrees_with_slogdet():
    """For an orthogonal layer exactly, for others within the allowance, which is not much larger than necessary."""
    for name in ("conv1x1", "periodic", "butterfly", "woodbury", "orthogonal"):
        layer = LAYERS[name]((3, 8, 8), **OPTIONS.get(name, {})).double().eval()
        perturb(layer, 0.3, torch.Generator().manual_seed(0))
        truth = float(torch.linalg.slogdet(push_identity(layer)).logabsdet)
        estimate = stochastic_log_det(layer, torch.Generator().manual_seed(0))
        assert not estimate.contradiction(truth)
        assert estimate.contradiction(truth + estimate.allowance * 1.5 + 1e-3), "the allowance is too large"
        assert estimate.condition <= log_det_and_condition(push_identity(layer))[1] * (1 + 1e-6)


class WrongGradient(Conv1x1):
    """Return y whose gradient by x is that of W^T."""

    def forward(self, x):
        y, log_det = super().forward(x)
        transposed = torch.einsum("co,nchw->nohw", self.matrix(), x)
        return y.detach() + transposed - transposed.detach(), log_det


def test_a_stochastic_log_det_needs_the_transpose():
    layer = WrongGradient((3, 4, 4)).double()
    perturb(layer, 0.3, torch.Generator().manual_seed(0))
    with pytest.raises(NotDifferentiable, match="not the transpose of forward"):
        stochastic_log_det(layer, torch.Generator().manual_seed(0))


def test_of_many_layers_a_sample_with_the_first_and_the_last_is_audited(monkeypatch):
    flow = Glow((1, 8, 8), Conv1x1, levels=2, steps=10, width=2)
    layers = dict(flow.linear_layers())
    assert chosen_layers(layers, 0).keys() == layers.keys()
    monkeypatch.setattr(harness.audit.linear, "WORK_LIMIT", 7 * 64**3)
    chosen = chosen_layers(layers, 0)
    ends = {f"level{level}/step{step}/layer" for level in (0, 1) for step in (0, 9)}
    assert ends < chosen.keys() < layers.keys()
    assert sum(layers[path].dim ** 3 for path in chosen) <= 7 * 64**3
    assert chosen == chosen_layers(layers, 0) and chosen.keys() != chosen_layers(layers, 1).keys()


def treat_as_large(monkeypatch, limit):
    """Treat layers above this D as large, and no matrix as sparse."""
    monkeypatch.setattr(harness.audit.linear, "DENSE_LIMIT", limit)
    monkeypatch.setattr("harness.audit.linear.MOST_ENTRIES", 0)
    monkeypatch.setattr(harness.audit.linear, "STAND_IN_LIMIT", limit)


def build(layer, shape):
    return type(layer)(shape, **OPTIONS.get(layer.registered_name, {}))


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_a_large_layer_has_a_smaller_stand_in(name, monkeypatch, build_layer):
    treat_as_large(monkeypatch, 20)
    options = OPTIONS.get(name, {})
    layer = build_layer(name, (4, 8, 8), **options).double().eval()
    perturb(layer, 0.3, torch.Generator().manual_seed(0))
    small = smaller(layer, lambda _, shape: build_layer(name, shape, **options))
    assert small.shape == (4, 2, 2)
    assert not small.training, "the stand-in must be in eval()"
    assert all(value.dtype == torch.float64 for value in small.parameters())
    if name == "conv1x1":
        assert torch.equal(small.matrix(), layer.matrix()), "its weights fit and were not copied"


def test_a_fault_of_a_large_layer_is_found_on_its_stand_in(monkeypatch, mutant, make_data, make_flow, audited):
    treat_as_large(monkeypatch, 20)
    data = make_data()
    assert audited(make_flow(data), data, build).verdict == "passed"
    result = audited(make_flow(data, mutant("ForgottenPositions")), data, build)
    assert any(text.startswith("level0/step0/layer: log-det is") for text in result.reasons)


def test_layers_that_cannot_be_audited_are_listed(monkeypatch, make_data, make_flow, audited):
    treat_as_large(monkeypatch, 40)
    data = make_data()
    result = audited(make_flow(data), data)
    assert result.verdict == "incomplete"
    assert set(result.not_audited) == {"level0/step0/layer"} and result.audited_layers == 1


@pytest.mark.parametrize("name", ["conv1x1", "emerging", "butterfly", "permutation", "scale"])
def test_a_sparse_matrix_is_factorised_exactly(name):
    if name == "permutation":  # with neighbours far apart
        layer = Chain((3, 8, 8), [Fixed((3, 8, 8)), LAYERS["emerging"]((3, 8, 8)), Fixed((3, 8, 8))]).double().eval()
    else:
        layer = LAYERS[name]((3, 8, 8), **OPTIONS.get(name, {})).double().eval()
    perturb(layer, 0.3, torch.Generator().manual_seed(0))
    matrix = push_identity(layer)
    found = sparse_matrix(layer, torch.float64)
    assert torch.equal(found.to_dense(), matrix)
    log_det, condition = log_det_and_condition(found)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(matrix).logabsdet)
    assert condition == pytest.approx(float(torch.linalg.cond(matrix)), rel=0.1)
    right = torch.randn(192, 1, dtype=torch.float64)
    for transposed, wanted in ((False, matrix), (True, matrix.T)):
        torch.testing.assert_close(wanted @ factorised(found)[2](right, transposed), right)


@pytest.mark.parametrize("formed", [True, False])
def test_a_sparse_matrix_of_too_many_entries_for_the_memory_is_not_formed(monkeypatch, formed):
    layer = LAYERS["emerging"]((3, 1024), kernel_size=3).double()
    column = sparse_matrix(layer, torch.float64).values().numel() / layer.dim
    monkeypatch.setattr("harness.audit.linear.MOST_OF_ALL", (int(column) + formed) * layer.dim)
    assert (sparse_matrix(layer, torch.float64) is not None) == formed and column > 1


def test_a_dense_singular_or_infinite_matrix_is_not_taken_for_a_sparse_one():
    assert sparse_matrix(LAYERS["woodbury"]((4, 512)).double(), torch.float64) is None
    layer = LAYERS["conv1x1"]((4, 16), parameterisation="dense").double()
    for value, log_det in ((0.0, -math.inf), (math.nan, math.nan)):
        with torch.no_grad():
            layer.weight[1] = value
        found, condition = log_det_and_condition(sparse_matrix(layer, torch.float64))
        assert condition == math.inf and str(float(found)) == str(log_det)


@pytest.mark.parametrize("limit", [1024, 8], ids=["exact", "power iteration"])
def test_condition_number(limit, monkeypatch):
    monkeypatch.setattr("harness.audit.linear.SVD_LIMIT", limit)
    u, _, v = torch.linalg.svd(torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    values = torch.linspace(1, 5, 64, dtype=torch.float64)
    values[0], values[-1] = 1e-3, 10.0
    assert log_det_and_condition(u * values @ v)[1] == pytest.approx(1e4, rel=1e-3)
    values[0] = 0.0
    assert log_det_and_condition(torch.diag(values))[1] == math.inf
    assert log_det_and_condition(torch.full((64, 64), math.nan))[1] == math.inf


def test_a_spectrum_down_to_0_is_no_contradiction():
    """Singular values i / D, of which the quadrature resolves the smallest last."""
    layer = LAYERS["scale"]((1, 256)).double()
    with torch.no_grad():
        layer.log_scale.copy_(torch.arange(1, 257).double().div(256).log().reshape(layer.log_scale.shape))
        truth = float(layer.log_det())
    estimate = stochastic_log_det(layer, torch.Generator().manual_seed(0), probes=4)
    assert abs(estimate.value - truth) > 0.1
    assert not estimate.contradiction(truth) and estimate.contradiction(truth / 1.1)
