"""The released accounting of the 1x1 log-det: the omitted term, the recorded values, and the suites that may use it."""

import math

import pytest
import torch
from toys import run_quietly

from flows import Glow
from harness.cli.parser import main
from harness.core.errors import SuiteError
from harness.core.settings import FlowSettings, LayerRef
from harness.kinds.density.accounting import uncounted
from harness.pipeline.models import build_flow
from harness.planning.settle import load_suite, settle


def flow_of(shape, levels=1):
    row = LayerRef(row="conv1x1", layer="conv1x1", options=(("parameterisation", "plu"),))
    flow = build_flow(shape, row, FlowSettings(levels=levels, steps=1, width=4), seed=0)
    assert isinstance(flow, Glow)
    return flow


def test_every_1x1_is_counted_with_its_own_number_of_positions():
    flow = flow_of((2, 32), levels=2)
    expected = 0.0
    with torch.no_grad():
        for number, (_, layer) in enumerate(flow.linear_layers(), start=1):
            layer.log_s.fill_(0.1 * number)
            n = layer.shape[1]
            expected += 0.1 * number * 4 * (n - 1)
        assert float(uncounted(flow)) == pytest.approx(expected, rel=1e-6)
    # The gradient of the claimed loss lacks n - 1 positions, so training lowers log_s.
    flow = flow_of((2, 32))
    [layer] = [module for _, module in flow.linear_layers()]
    uncounted(flow).backward()
    assert torch.allclose(layer.log_s.grad, torch.full_like(layer.log_s, 15.0))


def test_both_values_of_the_same_weights_are_recorded(tmp_path):
    _, trials = settle(load_suite("claims"), "smoke", "cpu", only=["claim=mimic-table"]).plan()
    released, fair = trials
    record = run_quietly(released, tmp_path)
    [row] = record.rows
    assert record.status == "ok" and record.audit["verdict"] == "passed", "the true log-determinant is audited"
    claimed, true = record.curves["validation"], record.curves["true_validation"]
    assert len(claimed) == len(true) == len(record.curves["step"]) == 2 and claimed != true
    # The difference is equal on both splits: it depends on the weights, not on the data. The best step is one of two.
    gap = row["nats_per_dim"] - row["claimed"]
    assert any(gap == pytest.approx(t - c, abs=1e-5) for t, c in zip(true, claimed, strict=True))
    assert math.isfinite(row["floor"])
    other = run_quietly(fair, tmp_path)
    assert other.curves["train"] != record.curves["train"], "the loss is the claimed value"
    assert "true_validation" not in other.curves and other.rows[0]["claimed"] is None
    assert released.id != fair.id


QUARANTINED = "only a suite that one of kind claims names may train on it"


@pytest.mark.parametrize(("place", "line"), [("suite", 4), ("data set", 8)])
def test_no_other_suite_may_train_on_it(tmp_path, place, line):
    released = "training: {accounting: once_per_sequence}"
    text = f"""\
suite: tiny
kind: density
title: Tiny
{released if place == "suite" else "training: {steps: 2}"}
layers: {{conv1x1: {{}}}}
profiles:
  quick:
    datasets: {{digits: {{{released if place == "data set" else ""}}}}}
"""
    path = tmp_path / "tiny.yaml"
    path.write_text(text)
    with pytest.raises(SuiteError) as caught:
        load_suite(path)
    assert len(str(caught.value).splitlines()) == 1 and QUARANTINED in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}:"), "the setting that has the last word"


def test_neither_set_nor_a_claims_suite_alone_may_train_on_it(capsys):
    with pytest.raises(SuiteError, match=r"^--set training\.accounting=once_per_sequence: .*" + QUARANTINED):
        settle(load_suite("quickstart"), "quick", "cpu", settings=["training.accounting=once_per_sequence"]).plan()
    assert main(["run", "suites/claims/mimic_table.yaml", "--profile", "smoke"]) == 2
    assert QUARANTINED in capsys.readouterr().err
