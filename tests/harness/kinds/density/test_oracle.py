"""Rows with options of their own: the oracle, which knows the permutation, and the control of two 1x1 convolutions."""

import numpy as np
import pytest
import torch
from toys import audited, density_trial, initialised, run_quietly, toy_pipeline, write_suite

from flows import Permutation
from harness.audit.linear import smaller
from harness.core.errors import SuiteError
from harness.core.settings import DataRef, LayerRef
from harness.datasets import Store, find_dataset
from harness.evaluation.evaluation import evaluate
from harness.kinds.density.run import _rebuild
from harness.kinds.density.weights import load_flow, weights_path
from harness.pipeline.models import build_flow
from harness.pipeline.pipeline import Pipeline
from harness.planning.settle import load_suite, settle


def trial(oracle, permute, layer="conv1x1", seed=0, **settings):
    data = DataRef(label="digits", name="digits", permute=permute, **settings)
    training = {"steps": 6, "batch_size": 32, "evaluate_every": 3, "draws": 2}
    layer = LayerRef(row=layer, layer=layer, oracle=oracle)
    return density_trial(layer, data, {"levels": 2, "width": 8}, training, seed=seed)


@pytest.mark.parametrize(
    "settings", [{}, {"preprocessing": "logit", "augmentation": "crop_flip"}], ids=["plain", "logit and augmentation"]
)
def test_an_oracle_has_the_curves_of_unpermuted_data(tmp_path, settings):
    rows = ((False, None), (True, 5), (False, 5))
    plain, oracle, blind = (run_quietly(trial(*row, **settings), tmp_path) for row in rows)
    assert [record.status for record in (plain, oracle, blind)] == ["ok"] * 3
    for record in (plain, oracle, blind):
        record.curves.pop("seconds")
    assert oracle.curves == plain.curves != blind.curves
    rows = [record.rows[0] for record in (plain, oracle)]
    same = {"bits_per_dim", "standard_error", "importance_weighted", "parameters", "masked_free", "best_step", "floor"}
    assert all(rows[0][name] == rows[1][name] for name in same)
    assert oracle.audit["verdict"] == "passed" and oracle.audit["logdet_error"] < 1e-9
    assert (oracle.audit["linear_layers"], oracle.audit["condition"]) == (2, plain.audit["condition"])
    arrays = [np.load(tmp_path / "records" / record.arrays) for record in (plain, oracle)]
    assert np.array_equal(arrays[0]["samples"], arrays[1]["samples"]), "saved samples are unpermuted"
    assert np.array_equal(arrays[0]["data"], arrays[1]["data"])


@pytest.mark.parametrize("permute", [5, "per-seed"])
def test_saved_weights_of_an_oracle_include_the_permutation(tmp_path, permute):
    oracle = trial(True, permute, seed=3)
    record = run_quietly(oracle, tmp_path)
    splits = find_dataset("digits").load(Store(None, tmp_path, offline=True), {})
    flow = load_flow(oracle, weights_path(oracle, tmp_path))
    pipeline = Pipeline(splits, oracle.data, seed=oracle.seed)
    again = evaluate(flow, pipeline, "test", 2, oracle.training.evaluation_batch, oracle.seed)
    assert again.bits_per_dim == record.rows[0]["bits_per_dim"]


def test_a_permutation_per_seed_is_that_of_the_seed(tmp_path):
    rows = ((False, None), (True, "per-seed"), (False, "per-seed"), (False, 3))
    plain, oracle, blind, fixed = (run_quietly(trial(*row, seed=3), tmp_path) for row in rows)
    for record in (plain, oracle, blind, fixed):
        record.curves.pop("seconds")
    assert oracle.curves == plain.curves != blind.curves
    assert blind.curves == fixed.curves and blind.rows[0]["bits_per_dim"] == fixed.rows[0]["bits_per_dim"]
    record = run_quietly(trial(True, None), tmp_path)
    assert record.status == "unsupported" and not record.rows
    reason = "conv1x1: an oracle knows the permutation of the data, and these have none; give them `permute`"
    assert record.reason == reason


class NonzeroLogDet(Permutation):
    """Return a log-det of 1."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det + 1


class Twice(Permutation):
    """Copy one entry to two places and lose another."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return torch.cat([y.flatten(1)[:, :1], y.flatten(1)[:, :-1]], dim=1).reshape(y.shape), log_det


class Scaled(Permutation):
    """Move the entries and scale them."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return 2 * y, log_det

    def inverse(self, y):
        return super().inverse(y / 2)


class Sorted(Permutation):
    """Permute each event differently, which no inverse can undo."""

    def forward(self, x):
        return x.flatten(1).sort().values.reshape(x.shape), x.new_zeros(())


class ForwardTwice(Permutation):
    """Apply the permutation again instead of its inverse."""

    def inverse(self, y):
        return self(y)[0]


@pytest.mark.parametrize(
    ("mutant", "reason"),
    [
        (Permutation, None),
        (NonzeroLogDet, "permutation: log-det is 1"),
        (Twice, "permutation: it is not a permutation of entries"),
        (Scaled, "permutation: it is not a permutation of entries"),
        (Sorted, "permutation: it is not a permutation of entries"),
        (ForwardTwice, "permutation: x -> z -> x is off"),
    ],
)
def test_the_audit_checks_the_permutation_of_an_oracle(mutant, reason):
    data = toy_pipeline((1, 8, 8), 17, (32, 8, 8), permute=5)
    oracle = trial(True, 5)
    flow = build_flow(data.shape, oracle.layer, oracle.flow, 0, oracle.data.permute)
    flow.permutation = mutant(flow.permutation.shape, flow.permutation.order)
    result = audited(initialised(flow, data), data)
    assert (result.verdict == "passed") == (reason is None), result.reasons
    assert reason is None or any(text.startswith(reason) for text in result.reasons), result.reasons


SUITE = """\
suite: oracle
kind: density
layers:
  conv1x1: {}
  oracle: {layer: conv1x1, oracle: true}
profiles:
  quick:
    flow: {levels: 1}
    datasets:
      digits: {}
      permuted-digits: {data: digits, permute: 0}
"""


def test_a_suite_must_declare_an_oracle_on_unpermuted_data_as_unsupported(tmp_path):
    suite = load_suite(write_suite(tmp_path, SUITE))
    with pytest.raises(SuiteError, match=r"oracle.yaml:5:.*oracle \(quick digits\): .*`unsupported: true`"):
        settle(suite, "quick", "cpu").plan()
    _, picked = settle(suite, "quick", "cpu", only=["dataset=permuted-digits"]).plan()
    assert [trial.layer.oracle for trial in picked] == [False, True]
    assert ["oracle" in trial.model_dump(mode="json")["layer"] for trial in picked] == [False, True]
    declared = "kind: density\nunsupported: true"
    path = write_suite(tmp_path, SUITE, "kind: density", declared)
    assert len(settle(load_suite(path), "quick", "cpu").plan()[0].trials) == 4
    path = write_suite(tmp_path, SUITE.replace("conv1x1: {}", '"*": {}'), "kind: density", declared)
    rows = settle(load_suite(path), "quick", "cpu").plan()[0].rows
    assert "conv1x1" in rows, "an oracle does not stand for its layer"
    counted = SUITE.replace("kind: density", "kind: parameters").replace("quick:\n", "quick:\n    widths: [4]\n")
    path = write_suite(tmp_path, counted, ", permute: 0")
    with pytest.raises(SuiteError, match=r"oracle.yaml:5:\d+: unknown key 'oracle'"):
        load_suite(path)


def two_convolutions(keep_mixer, **options):
    layer = LayerRef(row="two 1x1", layer="conv1x1", keep_mixer=keep_mixer, options=options)
    flow = {"levels": 2, "width": 8, "mixer": "qr"}
    return density_trial(layer, "digits", flow, {"steps": 2, "batch_size": 32})


def flow_of(trial, shape=(1, 8, 8)):
    return build_flow(shape, trial.layer, trial.flow, trial.seed)


def test_each_step_has_a_mixer_and_a_layer_with_weights_of_their_own():
    single, double = (dict(flow_of(two_convolutions(keep)).linear_layers()) for keep in (False, True))
    assert list(single) == ["level0/step0/layer", "level1/step0/layer"]
    assert list(double) == [f"level{level}/step0/{name}" for level in (0, 1) for name in ("mixer", "layer")]
    for level in (0, 1):
        mixer, layer = (double[f"level{level}/step0/{name}"] for name in ("mixer", "layer"))
        assert (mixer.parameterisation, layer.parameterisation) == ("qr", "plu")
        assert not torch.allclose(mixer.matrix(), layer.matrix())
        assert torch.equal(layer.matrix(), single[f"level{level}/step0/layer"].matrix())
    made = two_convolutions(True, parameterisation="dense")
    for _, layer in flow_of(made, (1, 128, 128)).linear_layers():
        small = smaller(layer, lambda old, shape: _rebuild(made, old, shape))
        assert small.parameterisation == layer.parameterisation and small.dim < layer.dim
        assert torch.equal(small.matrix(), layer.matrix()), "weights that do not depend on the size are copied"


def test_the_audit_covers_both_convolutions(tmp_path):
    records = [run_quietly(two_convolutions(keep), tmp_path) for keep in (False, True)]
    assert [record.audit["verdict"] for record in records] == ["passed", "passed"]
    assert [record.audit["linear_layers"] for record in records] == [2, 4]
    counts = [record.rows[0]["parameters"] for record in records]
    mixers = [flow_of(two_convolutions(True)).get_submodule(f"levels.{level}.steps.0.mixer") for level in (0, 1)]
    assert counts[1] - counts[0] == sum(weight.numel() for mixer in mixers for weight in mixer.parameters())


CONTROL = """\
suite: control
kind: density
layers:
  two: {layer: conv1x1, keep_mixer: true}
  "*": {}
profiles:
  quick:
    flow: {levels: 1, steps: 1, width: 8}
    datasets: {digits: {}}
"""


def test_a_suite_plans_the_control_beside_its_layer(tmp_path):
    plan, _ = settle(load_suite(write_suite(tmp_path, CONTROL)), "quick", "cpu", only=["layer=two"]).plan()
    assert {"two", "conv1x1", "recurrence"} <= set(plan.rows)
    assert plan.unsupported, "recurrence refuses images, and `*` names it without a word of the suite"
    kept = {made.layer.row for made in plan.trials if "keep_mixer" in made.model_dump(mode="json")["layer"]}
    assert kept == {"two"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("layer: conv1x1", "layer: woodbury", "two: keep_mixer has no effect, as woodbury does not replace the mixer"),
        ("width: 8", "mixer: none", "two: keep_mixer has no effect on digits, where flow.mixer is none; give plu, qr"),
    ],
)
def test_a_control_without_effect_is_refused(tmp_path, old, new, message):
    with pytest.raises(SuiteError, match=rf"control.yaml:4:\d+: {message}") as caught:
        load_suite(write_suite(tmp_path, CONTROL, old, new))
    assert len(str(caught.value).splitlines()) == 1
