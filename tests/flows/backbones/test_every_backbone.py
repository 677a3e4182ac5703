"""Every backbone: its weights at equal seeds, empty batches, autocast, and tensors without values."""

import math

import pytest
import torch

from flows import Autoregressive, Glow
from flows.backbones.columns import Columns
from flows.backbones.masked import Masked
from layers.conv1x1 import Conv1x1
from layers.periodic import Periodic
from layers.scale import Scale

COUPLINGS = ["image", "glow", "sequence", "attention"]
BLOCKS = {"levels": 1, "steps": 3, "width": 8}
OTHERS = [
    *((Autoregressive, shape, BLOCKS) for shape in ((2, 8), (1, 4, 4), (2, 4, 4))),
    *((backbone, (5, 1), {"steps": 2, "width": 8}) for backbone in (Columns, Masked)),
]
GLOWS = [
    (Glow, shape, {"levels": 1 if shape == (5, 1) else 2, "steps": 1, "width": 4, "coupling": coupling, "prior": prior})
    for shape in ((2, 4, 4), (2, 8), (5, 1))
    for coupling in COUPLINGS
    for prior in ("standard", "learned")
]
LEARNED = [(cls, shape, options) for cls, shape, options in GLOWS[:8] if options["prior"] == "learned"]


@pytest.mark.parametrize("backbone", [Glow, Autoregressive, Columns, Masked])
def test_all_but_the_layers_depends_on_the_seed_alone(backbone, case):
    def weights(make, seed):
        flow = backbone(shape, make, Conv1x1, **options, seed=seed)
        parts = [part for level in flow.parts() for part in level if not part[0].endswith("/layer")]
        return {f"{path} {name}": value for path, part in parts for name, value in part.state_dict().items()}

    for shape, options in ((shape, options) for cls, shape, options in (*OTHERS, *GLOWS) if cls is backbone):
        with case(shape=shape, **options):
            first, same, other = weights(Periodic, 3), weights(Scale, 3), weights(Scale, 4)
            assert first.keys() == same.keys() and all(torch.equal(first[name], same[name]) for name in first)
            differ = {name for name in first if not torch.equal(first[name], other[name])}
            assert any("mixer" in name for name in differ)
            assert any("coupling" in name or "block" in name for name in differ)
            positions = [value for name, value in first.items() if name.endswith("/block position")]
            assert len({tuple(value.flatten().tolist()) for value in positions}) == len(positions)


def test_an_empty_batch(way, case):
    for backbone, shape, options in (*GLOWS, *OTHERS):
        with case(backbone=backbone, shape=shape, **options):
            flow = backbone(shape, Periodic, Conv1x1, order=range(math.prod(shape)), **options)
            x = torch.empty(0, *shape, requires_grad=True)
            for _, module, value in flow.trace(x):
                assert module.inverse(module(value)[0]).shape == value.shape
            log_prob = flow.log_prob(x)
            log_prob.sum().backward()
            assert log_prob.shape == (0,) and x.grad.shape == x.shape
            assert flow.inverse(flow(x)[0]).shape == x.shape


def test_autocast_rounds_networks_alone(perturb, case):
    """The log-det is that of the map under autocast, so its inverse is exact and its density integrates to one.

    Transformers of blocks are not rounded: a step and the pass would be rounded differently.
    """
    for backbone, shape, options in (*OTHERS, *LEARNED):
        with case(backbone=backbone, shape=shape, **options):
            torch.manual_seed(0)
            bounded = {} if backbone is Glow else {"gate": "bounded"}
            flow = perturb(backbone(shape, Periodic, Conv1x1, **options, **bounded)).float()
            x = torch.randn(6, *shape)
            expected = flow.log_prob(x)
            with torch.autocast("cpu", torch.bfloat16):
                z, log_det = flow(x)
                log_prob, back = flow.log_prob(x), flow.inverse(z)
            assert {value.dtype for value in (z, log_det, log_prob, back)} == {torch.float32}
            torch.testing.assert_close(back, x, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(log_prob, expected, rtol=1e-6 if backbone is Autoregressive else 0.02, atol=0)
            prior = -0.5 * (z.square() + math.log(2 * math.pi)).sum(1)
            torch.testing.assert_close(log_prob, prior + log_det, rtol=1e-6, atol=1e-4)
            log_prob.sum().backward()


def test_control_flow_does_not_depend_on_values(channelwise, case):
    """Tensors on the meta device hold no data: a branch on values, or a copy to the host, raises."""
    for backbone, shape, options in (*OTHERS[:3], *LEARNED):
        with case(backbone=backbone, shape=shape, **options), torch.device("meta"):
            flow = backbone(shape, channelwise, channelwise, **options)
            log_prob = flow.log_prob(torch.empty(3, *shape))
            assert log_prob.shape == (3,) and flow.inverse(torch.empty(3, flow.dim)).shape == (3, *shape)
