"""The control with two 1x1 convolutions per step: it keeps the mixer beside a layer that would replace it."""

import pytest
import torch
from toys import density_trial, write_suite

from harness.audit.layer_choice import smaller
from harness.core.errors import SuiteError
from harness.core.settings import LayerRef
from harness.kinds.density.run import _rebuild
from harness.kinds.density.run import run as run_density
from harness.pipeline.models import build_flow
from harness.planning.settle import load_suite, settle


def trial(keep_mixer, **options):
    layer = LayerRef(row="two 1x1", layer="conv1x1", keep_mixer=keep_mixer, options=options)
    flow = {"levels": 2, "width": 8, "mixer": "qr"}
    return density_trial(layer, "digits", flow, {"steps": 2, "batch_size": 32})


def flow_of(trial, shape=(1, 8, 8)):
    return build_flow(shape, trial.layer, trial.flow, trial.seed)


def test_each_step_has_a_mixer_and_a_layer_with_weights_of_their_own():
    single, double = (dict(flow_of(trial(keep)).linear_layers()) for keep in (False, True))
    assert list(single) == ["level0/step0/layer", "level1/step0/layer"]
    assert list(double) == [f"level{level}/step0/{name}" for level in (0, 1) for name in ("mixer", "layer")]
    for level in (0, 1):
        mixer, layer = (double[f"level{level}/step0/{name}"] for name in ("mixer", "layer"))
        assert (mixer.parameterisation, layer.parameterisation) == ("qr", "plu")
        assert not torch.allclose(mixer.matrix(), layer.matrix())
        assert torch.equal(layer.matrix(), single[f"level{level}/step0/layer"].matrix())


def test_the_audit_covers_both_convolutions(tmp_path):
    records = [run_density(trial(keep), None, tmp_path, lambda done, text: None) for keep in (False, True)]
    assert [record.audit["verdict"] for record in records] == ["passed", "passed"]
    assert [record.audit["linear_layers"] for record in records] == [2, 4]
    counts = [record.rows[0]["parameters"] for record in records]
    mixers = [flow_of(trial(True)).get_submodule(f"levels.{level}.steps.0.mixer") for level in (0, 1)]
    assert counts[1] - counts[0] == sum(weight.numel() for mixer in mixers for weight in mixer.parameters())


def test_the_audit_makes_each_of_the_two_smaller_with_its_own_options():
    control = trial(True, parameterisation="dense")
    for _, layer in flow_of(control, (1, 128, 128)).linear_layers():
        small = smaller(layer, lambda old, shape: _rebuild(control, old, shape))
        assert small.parameterisation == layer.parameterisation and small.dim < layer.dim
        assert torch.equal(small.matrix(), layer.matrix()), "weights that do not depend on the size are copied"


SUITE = """\
suite: control
kind: density
title: Control
layers:
  two: {layer: conv1x1, keep_mixer: true}
  "*": {}
profiles:
  quick:
    flow: {levels: 1, steps: 1, width: 8}
    datasets: {digits: {}}
"""


def test_a_suite_plans_the_control_beside_its_layer(tmp_path):
    plan, _ = settle(load_suite(write_suite(tmp_path, SUITE)), "quick", "cpu", only=["layer=two"]).plan()
    assert {"two", "conv1x1", "recurrence"} <= set(plan.rows)
    assert plan.unsupported, "recurrence refuses images, and `*` names it without a word of the suite"
    kept = {trial.layer.row for trial in plan.trials if "keep_mixer" in trial.model_dump(mode="json")["layer"]}
    assert kept == {"two"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("layer: conv1x1", "layer: woodbury", "two: keep_mixer has no effect, as woodbury does not replace the mixer"),
        ("width: 8", "mixer: none", "two: keep_mixer has no effect on digits, where flow.mixer is none; give plu, qr"),
    ],
)
def test_a_control_without_effect_is_refused(tmp_path, old, new, message):
    with pytest.raises(SuiteError, match=rf"control.yaml:5:\d+: {message}") as caught:
        load_suite(write_suite(tmp_path, SUITE, old, new))
    assert len(str(caught.value).splitlines()) == 1
