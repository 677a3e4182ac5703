"""The backbone of autoregressive blocks in suites: its flows, what has no effect in it, its captions and leads."""

import pytest
import torch
from toys import audited, density_trial, initialised, run_quietly, toy_pipeline, write_suite

from flows.affine import bounded_gate, exponential_gate
from flows.backbones.autoregressive import AutoregressiveBlock
from harness.core.errors import SuiteError
from harness.core.settings import DataRef, FlowSettings, LayerRef
from harness.kinds.density.figures.capacity import _panels
from harness.kinds.density.tables.differences import control_of
from harness.kinds.density.tables.publication import density_caption
from harness.pipeline.models import build_flow, layer_shapes
from harness.planning.settle import load_suite, settle
from harness.reporting.frame import Results

BLOCKS = FlowSettings(backbone="autoregressive", levels=1, steps=3, width=8)
CONV = LayerRef(row="conv1x1", layer="conv1x1")

SUITE = """\
suite: blocks
kind: density
layers:
  turning: {layer: fixed, options: {map: turn}, flow: {turn: false}}
  emerging: {options: {kernel_size: 3}}
  twice: {layer: conv1x1, keep_mixer: true}
flow: {backbone: autoregressive, levels: 1, steps: 2, width: 8}
profiles:
  quick:
    datasets:
      digits: {}
      digits glow: {data: digits, flow: {backbone: glow}, rows: [turning, twice]}
"""


@pytest.fixture
def plan_of(tmp_path):
    return lambda *change: settle(load_suite(write_suite(tmp_path, SUITE, *change)), "quick", "cpu").plan()[0]


def blocks_of(flow):
    return [part for path, part in flow.parts()[0] if path.endswith("/block")]


def names(layer, flow=BLOCKS):
    return [path for path, _ in build_flow((1, 8, 8), layer, flow, 0).linear_layers()]


def test_mixers_patches_and_turns_of_blocks():
    emerging = LayerRef(row="emerging", layer="emerging")
    assert names(emerging) == names(CONV) == ["step1/layer", "step2/layer"]
    kept = ["step1/mixer", "step1/layer", "step2/mixer", "step2/layer"]
    assert names(CONV.model_copy(update={"keep_mixer": True})) == kept
    assert layer_shapes((1, 8, 8), BLOCKS) == [(4, 4, 4)]
    glow = BLOCKS.model_copy(update={"backbone": "glow", "levels": 2})
    assert layer_shapes((1, 8, 8), glow) == [(4, 4, 4), (8, 2, 2)]
    for turn in (True, False):
        flow = build_flow((1, 8, 8), CONV, BLOCKS.model_copy(update={"turn": turn}), 0)
        assert any(path.endswith("/turn") for path, _ in flow.parts()[0]) is turn
    assert {"backbone", "turn"}.isdisjoint(FlowSettings().model_dump(mode="json"))
    assert BLOCKS.model_dump(mode="json")["backbone"] == "autoregressive"


@pytest.mark.parametrize(("gate", "function"), [("published", exponential_gate), ("bounded", bounded_gate)])
def test_blocks_have_the_gate_of_the_suite(gate, function):
    flow = build_flow((1, 8, 8), CONV, BLOCKS.model_copy(update={"gate": gate}), 0)
    assert [block.gate for block in blocks_of(flow)] == [function] * 3


@pytest.mark.parametrize("data", ["digits", "waveforms"])
def test_a_trial_trains_and_passes_the_audit(data, tmp_path):
    source = DataRef(label=data, name=data, options={"length": 32} if data == "waveforms" else {})
    flow = {"backbone": "autoregressive", "gate": "bounded", "steps": 2, "width": 8}
    trial = density_trial("emerging", source, flow, {"steps": 3, "batch_size": 32, "evaluate_every": 3})
    record = run_quietly(trial, tmp_path)
    assert (record.status, record.audit["verdict"]) == ("ok", "passed")
    assert record.audit["linear_layers"] == 1


class ForgottenScale(AutoregressiveBlock):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det - (y / x).flatten(2)[:, 0, 1].log()


class SeesItself(AutoregressiveBlock):
    """The output at a position comes from that position, not from the one before it."""

    def forward(self, x):
        values = x.flatten(2).mT
        tokens = self.first(values[:, 1:]) + self.position
        for block in self.blocks:
            tokens = block(tokens)
        log_scale, shift = self._affine(tokens)
        y = torch.cat([values[:, :1], (values[:, 1:] + shift) * log_scale.exp()], dim=1)
        return y.mT.reshape(x.shape), log_scale.flatten(1).sum(1)


@pytest.mark.parametrize(("shape", "fault"), [((1, 8, 8), SeesItself), ((2, 256), ForgottenScale)])
def test_the_audit_catches_faults_of_a_block(shape, fault):
    data = toy_pipeline(shape, 9)
    settings = FlowSettings(backbone="autoregressive", levels=4 if len(shape) == 2 else 1, steps=2, width=8)
    flow = build_flow(shape, CONV, settings.model_copy(update={"gate": "bounded"}), 0)
    initialised(flow, data)
    with torch.no_grad():
        for block in blocks_of(flow):
            for weight in block.parameters():
                weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    result = audited(flow, data)
    assert result.verdict == "passed", result.reasons
    blocks_of(flow)[0].__class__ = fault
    result = audited(flow, data)
    assert result.verdict == "failed" and any("step0/block: log-det is" in text for text in result.reasons)


def test_a_data_set_may_have_some_of_the_rows_and_leads_are_over_the_turn(plan_of):
    trials = {(trial.data.label, trial.layer.row) for trial in plan_of().trials}
    rows = {"digits": ("turning", "emerging", "twice"), "digits glow": ("turning", "twice")}
    assert trials == {(column, row) for column in rows for row in rows[column]}
    plan_of("quick:", "quick:\n    flow: {turn: false, mixer: qr}")
    assert control_of(plan_of()) == "turning"
    assert control_of(plan_of("{layer: fixed, options: {map: turn}, flow: {turn: false}}", "{layer: fixed}")) == "twice"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows: [turning, twice]", "rows: [turning, twize]", "rows: no row 'twize' in the profile; did you mean twice"),
        ("width: 8}", "width: 8, coupling: attention}", "flow.coupling: has no effect on the backbone autoregressive"),
        ("width: 8}", "width: 8, prior: learned}", "flow.prior: has no effect on the backbone autoregressive"),
        ("backbone: glow}", "backbone: glow, turn: true}", "flow.turn: has no effect on the backbone glow"),
        ("digits: {}", "digits: {rows: [emerging], flow: {mixer: qr}}", "flow.mixer: has no effect on"),
        ("steps: 2", "steps: 1", "flow.steps: 1, and the backbone autoregressive takes at least 2"),
        ("levels: 1", "levels: 3", "at least two positions after 3 squeezes; use levels = 2"),
        ("autoregressive,", "autoregresive,", "backbone"),
    ],
)
def test_what_makes_no_flow_or_has_no_effect_is_refused(plan_of, old, new, message):
    with pytest.raises(SuiteError, match=message):
        plan_of(old, new)


def test_captions_and_the_figure_of_leads_name_the_backbones(plan_of):
    caption = density_caption(Results.of(plan_of(), []), False)
    blocks = "2 autoregressive blocks of width 8 on patches of 2 entries per axis, layers before the turn"
    assert f"{blocks} (turning: layers in place of the turn) on digits; " in caption
    assert "Glow with 1 level of 2 steps, width 8 on digits glow" in caption
    plan = plan_of(
        "digits glow: {data: digits, flow: {backbone: glow}, rows: [turning, twice]}",
        "wide: {data: digits, flow: {width: 16}, layers: {turning: {flow: {width: 12}}}}\n"
        "      glow: {data: digits, flow: {backbone: glow}, rows: [turning, twice]}\n"
        "      attention: {data: digits, flow: {backbone: glow, coupling: attention}}",
    )
    first, *_ = _panels(plan)
    assert (first.title, first.axis) == ("digits", "width of blocks")
    assert first.columns == {"8": "digits", "16": "wide"}
    assert first.others == {"glow\n8": "glow", "attention\n8": "attention"}
