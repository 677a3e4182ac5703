"""The gates of couplings: their formulas, and inverses for extreme network outputs."""

import math

import pytest
import torch

from flows import Glow, make_coupling
from flows.affine import bounded_gate, doubled_gate, exponential_gate, sigmoid_gate
from flows.conditioners import WeightNormConditioner
from flows.coupled import convolutions

COUPLINGS = ["image", "glow", "sequence", "attention"]
PUBLISHED = {"image": sigmoid_gate, "glow": sigmoid_gate, "sequence": exponential_gate, "attention": doubled_gate}
SCALES = {
    sigmoid_gate: lambda s: 1 / (1 + math.exp(-s - 2)),
    exponential_gate: math.exp,
    doubled_gate: lambda s: 2 / (1 + math.exp(-s)),
    bounded_gate: lambda s: 0.5 + 1 / (1 + math.exp(-s)),
}
SHAPE = (4, 3, 3)


def raw(module, kept):
    """Return s and the shift from the network of a coupling, before the gate."""
    net = module.net
    if hasattr(net, "log_scale"):
        places = kept.flatten(2)
        return tuple(part(places).unflatten(2, kept.shape[2:]) for part in (net.log_scale, net.shift))
    if isinstance(net, WeightNormConditioner):
        shift, s = convolutions(kept, net.first, net.second, net.last).chunk(2, dim=1)
        return s, shift
    heads = []
    with net.last.register_forward_hook(lambda *call: heads.append(call[-1])):
        net(kept)
    head = heads[0].mT.unflatten(2, kept.shape[2:]) if heads[0].ndim == 3 else heads[0]
    shift, s = head.chunk(2, dim=1)
    return s, shift


def saturate(module, s):
    """Set the biases of a coupling's last layer so that the network returns s everywhere and a shift of 0."""
    net = module.net
    with torch.no_grad():
        if hasattr(net, "log_scale"):
            for head, value in ((net.log_scale, s), (net.shift, 0.0)):
                head[-1].weight.zero_()
                head[-1].bias.fill_(value)
        else:
            bias = next(value for name, value in net.last.named_parameters() if name.endswith("bias"))
            bias.copy_(torch.tensor([0.0, s]).repeat_interleave(len(bias) // 2))
    return module


@pytest.mark.parametrize("gate", SCALES)
def test_gates_follow_their_formulas(gate):
    points = [-40.0, -3.0, -0.2, 0.0, 1e-9, 0.7, 5.0, 40.0]
    s = torch.tensor(points, dtype=torch.float64)
    expected = torch.tensor([SCALES[gate](point) for point in points], dtype=torch.float64)
    log_scale = gate(s)
    torch.testing.assert_close(log_scale.exp(), expected, rtol=1e-13, atol=0)
    slopes = torch.func.vmap(torch.func.grad(gate))(s)
    ahead, behind = (gate(s + step) for step in (1e-6, -1e-6))
    torch.testing.assert_close(slopes, (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-8)


def test_the_bounded_gate_is_stable():
    gate = bounded_gate
    s = torch.tensor([-1e30, -200.0, 200.0, 1e30], requires_grad=True)
    log_scale = gate(s)
    torch.testing.assert_close(log_scale, torch.tensor([0.5, 0.5, 1.5, 1.5]).log(), rtol=1e-6, atol=0)
    log_scale.sum().backward()
    assert s.grad.isfinite().all()
    small = torch.tensor([-1e-7, 0.0, 1e-7])  # which 0.5 + sigmoid(s) loses in float32
    torch.testing.assert_close(gate(small), small / 4, rtol=1e-6, atol=0)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("gate", [(), ("published",), ("bounded",)])
def test_couplings_apply_their_gate_to_the_network_output(coupling, gate, perturb):
    """The published one by default."""
    module = perturb(make_coupling(coupling, SHAPE, 5, *gate))
    x = torch.randn(3, *SHAPE, dtype=torch.float64)
    s, shift = raw(module, x[:, :2])
    formula = SCALES[bounded_gate if gate == ("bounded",) else PUBLISHED[coupling]]
    scale = s.detach().clone().apply_(formula)
    assert scale.std() > 0.01
    y, log_det = module(x)
    moved = (x[:, 2:] + shift) * scale if coupling in ("glow", "attention") else x[:, 2:] * scale + shift
    torch.testing.assert_close(y[:, 2:], moved)
    torch.testing.assert_close(log_det, scale.log().flatten(1).sum(1))


@pytest.mark.parametrize("coupling", ["image", "glow", "attention"])
def test_bounded_couplings_start_as_the_identity(coupling):
    x = torch.randn(2, *SHAPE)
    module = make_coupling(coupling, SHAPE, 5, "bounded")
    module.initialise(x)
    y, log_det = module(x)
    assert torch.equal(y, x) and torch.equal(log_det, torch.zeros(2))


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("s", [-50.0, 50.0])
def test_only_a_bounded_gate_is_invertible_when_saturated(coupling, s):
    x = torch.randn(4, *SHAPE)
    for gate in ("published", "bounded"):
        module = saturate(make_coupling(coupling, SHAPE, 5, gate), s)
        y, log_det = module(x)
        lost = (module.inverse(y + 1e-6) - x).abs().max()  # 1e-6: an error of rounding in y
        if gate == "bounded":
            assert lost < 1e-5
            assert log_det.tolist() == pytest.approx([18 * math.log(0.5 if s < 0 else 1.5)] * 4)
        elif s < 0:
            assert lost > 1e6


def test_the_gate_option_reaches_every_coupling_and_no_prior(channelwise):
    options = {"levels": 2, "steps": 1, "width": 4, "prior": "learned", "split_step": True}
    for gate, kind in (("published", sigmoid_gate), ("bounded", bounded_gate)):
        parts = dict(part for level in Glow((1, 8, 8), channelwise, gate=gate, **options).parts() for part in level)
        couplings = [part for path, part in parts.items() if path.endswith("/coupling")]
        assert len(couplings) == 3 and all(part.net.gate is kind for part in couplings)
        assert not hasattr(parts["level0/split_prior"].net, "gate")
