"""The gate of a trial's couplings: what the audit says of a closed one, what a suite may ask, what its report says."""

import pytest
import torch
from toys import audited, density_trial, initialised, toy_pipeline

from harness.kinds.density.trial import DensityTrial
from harness.kinds.parameters.trial import ParametersTrial
from harness.pipeline.models import build_flow
from harness.planning.settle import load_suite, settle
from harness.reporting.report import ReportedResults


def trial(**flow):
    return density_trial(data="digits", flow=flow, training={"steps": 10}, profile="quick")


@pytest.mark.parametrize(
    ("gate", "s", "verdict"),
    [("published", -50.0, "failed"), ("bounded", -50.0, "passed"), ("bounded", 50.0, "passed")],
)
@pytest.mark.parametrize("coupling", ["image", "glow", "sequence", "attention"])
def test_a_saturated_gate_passes_the_audit_only_if_bounded(coupling, gate, s, verdict):
    settings = trial(coupling=coupling, gate=gate, steps=2)  # the second step mixes both halves: small values are lost
    data = toy_pipeline((1, 8, 8), 17, (32, 8, 8))
    flow = initialised(build_flow(data.shape, settings.layer, settings.flow, 0), data)
    net = flow.levels[0].steps[0].coupling.net
    head = net.log_scale[-1] if coupling == "sequence" else net.last
    bias = next(value for name, value in head.named_parameters() if name.endswith("bias"))
    with torch.no_grad():
        bias[-2:] = s  # of the two moved channels
    result = audited(flow, data, 8)
    assert result.verdict == verdict, result.reasons
    if verdict == "failed":
        assert any("x -> z -> x" in reason for reason in result.reasons), result.reasons


def test_trials_of_the_published_gate_keep_their_ids():
    assert trial().id == trial(gate="published").id == "digits-conv1x1-s0-097d28dc76d9"
    parts = {"label": "digits", "shape": (1, 8, 8), "layer": trial().layer, "flow": trial().flow}
    count = ParametersTrial(suite="toy", profile="quick", **parts)
    assert count.id == "digits-conv1x1-w4-239187f88d4e"
    bounded = trial(gate="bounded")
    assert bounded.id != trial().id
    assert DensityTrial.model_validate_json(bounded.model_dump_json()) == bounded
    assert DensityTrial.model_validate_json(trial().model_dump_json()).flow.gate == "published"


def test_the_galaxy_suite_bounds_the_gate_except_in_its_published_protocol():
    suite = load_suite("galaxy")
    for profile in ("smoke", "quick", "local", "paper"):
        plan = settle(suite, profile, "cpu").plan()[0]
        assert {trial.flow.gate for trial in plan.trials} == {"published" if profile == "paper" else "bounded"}
        (likelihood, *_) = ReportedResults.of(plan, []).report.tables
        assert ("coupling scales bounded to (0.5, 1.5)" in likelihood.caption) == (profile != "paper")
        remarked = [note for note in likelihood.notes if "fails its audit" in note]
        assert len(remarked) == (profile == "paper")
    changed = settle(suite, "paper", "cpu", settings=["flow.gate=bounded"]).plan()[0]
    assert {trial.flow.gate for trial in changed.trials} == {"bounded"}
    plan = settle(load_suite("density"), "smoke", "cpu", settings=["flow.gate=bounded"]).plan()[0]
    glow, baselines = ReportedResults.of(plan, []).report.tables[0].caption.split("Complete flows")
    assert "scales bounded" in glow and "scales bounded" not in baselines
