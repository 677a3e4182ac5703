"""The backbones of tables: couplings over columns, and masked blocks, with affine maps and splines."""

import itertools
import math

import pytest
import torch

from flows import UnsupportedEvent
from flows.backbones.columns import ColumnCoupling, Columns, ResidualNetwork
from flows.backbones.masked import Masked
from flows.masked import MaskedBlock
from flows.splines import BOUND, Spline
from layers.conv1x1 import Conv1x1
from layers.fixed import Fixed
from layers.scale import Scale

BACKBONES = [Columns, Masked]
MAPS = [("spline", "published"), ("spline", "bounded"), ("affine", "published"), ("affine", "bounded")]
BINS = 5


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("shape", [(2, 1), (5, 1), (2, 3), (1, 2, 3)])
def test_a_flow_is_a_bijection_with_its_log_det(backbone, shape, everywhere, perturb, check_bijection, case):
    for (name, gate), mixer in itertools.product(MAPS, (None, everywhere)):
        with case(map=name, gate=gate, mixer=mixer):
            order = torch.randperm(math.prod(shape))
            flow = backbone(shape, everywhere, mixer, steps=2, width=8, map=name, gate=gate, bins=BINS, order=order)
            x = torch.randn(3, *shape, dtype=torch.float64)
            flow.double().initialise(torch.randn(64, *shape, dtype=torch.float64))
            check_bijection(perturb(flow, 0.2), x)
            parts = [path for path, _ in flow.parts()[0]]
            step = ["actnorm", *["mixer"] * (mixer is not None), "layer", "block"]
            assert parts == ["permutation", *(f"step{number}/{part}" for number in range(2) for part in step)]
            z, log_det = flow(x)
            prior = -0.5 * (z.square() + math.log(2 * math.pi)).sum(1)
            torch.testing.assert_close(flow.log_prob(x), prior + log_det)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_blocks_start_as_the_identity(backbone):
    flow = backbone((6, 1), Conv1x1, steps=2, width=8)
    for path, part, value in flow.trace(torch.randn(40, 6, 1)):
        if path.endswith("block"):
            y, log_det = part(value)
            torch.testing.assert_close(y, value, rtol=1e-6, atol=1e-6)
            assert log_det.abs().max() < 1e-5


@pytest.mark.parametrize("dim", [2, 7])
def test_a_coupling_has_the_values_of_nflows_with_the_same_weights(dim, perturb):
    nflows = pytest.importorskip("nflows.transforms")
    resnet = pytest.importorskip("nflows.nn.nets")
    width, kept = 8, dim - dim // 2
    coupling = perturb(ColumnCoupling(dim, width, Spline(BINS)))

    class SameNetwork(torch.nn.Module):
        """Its residual network with our weights. Without `hidden_features`, by which it would scale the outputs."""

        def __init__(self, inputs, outputs):
            super().__init__()
            net = resnet.ResidualNet(inputs, outputs, width).double()
            ours = coupling.net
            pairs = [(net.initial_layer, ours.first), (net.final_layer, ours.last)]
            for theirs, block in zip(net.blocks, ours.blocks, strict=True):
                pairs += zip(theirs.linear_layers, block, strict=True)
            for theirs, linear in pairs:
                theirs.load_state_dict(linear.state_dict())
            self.inner = [net]

        def forward(self, x, context=None):
            raw = self.inner[0](x).unflatten(1, (-1, 3 * BINS - 1)).clone()
            raw[..., 2 * BINS :] += coupling.map.shift  # its raw slopes of zero do not give the identity
            return raw.flatten(1)

    reference = nflows.PiecewiseRationalQuadraticCouplingTransform(
        torch.arange(dim) >= kept, SameNetwork, num_bins=BINS, tails="linear", tail_bound=BOUND
    )
    x = 1.5 * torch.randn(50, dim, dtype=torch.float64)
    y, log_det = coupling(x[:, :, None])
    torch.testing.assert_close((y[:, :, 0], log_det), reference(x), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(coupling.inverse(y)[:, :, 0], reference.inverse(y[:, :, 0])[0], rtol=1e-7, atol=1e-7)


def test_a_masked_block_of_splines_has_the_values_and_the_inverse_of_zuko(perturb):
    transforms = pytest.importorskip("zuko.transforms")
    block = perturb(MaskedBlock(torch.randperm(6), 16, 2, Spline(BINS)))

    def made(x):
        raw = block.raw(x)
        spline = transforms.MonotonicRQSTransform(*raw.split([BINS, BINS, BINS - 1], dim=-1))
        spline.horizontal, spline.vertical, spline.derivatives = block.map.knots(raw)
        return transforms.DependentTransform(spline, 1)

    x = torch.randn(8, 6, dtype=torch.float64)
    reference = transforms.AutoregressiveTransform(made, 6)
    expected, log_det = reference.call_and_ladj(x)
    y, claimed = block(x[:, :, None])
    torch.testing.assert_close((y[:, :, 0], claimed), (expected, log_det), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(block.inverse(y)[:, :, 0], reference.inv(expected), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("backbone", "width"), [(Columns, 4), (Masked, 4), (Masked, 16)])
def test_columns_depend_on_those_before_them_alone(backbone, width):
    """A mask off by one, to either side, would show here; with few units, each column still decides a later one."""
    flow = backbone((9, 1), lambda shape: Fixed(shape, map="turn"), steps=1, width=width).double()
    with torch.no_grad():
        for weight in flow.parameters():
            weight.abs_().add_(0.1)  # nothing cancels, and every unit is active
    event = 0.1 * torch.rand(9, 1, dtype=torch.float64)
    depends = torch.autograd.functional.jacobian(lambda x: flow(x[None])[0][0], event)[..., 0] != 0
    if width == 4 and backbone is Masked:
        assert not depends.triu(1).any() and depends.diagonal().all() and depends.tril(-1).any(0)[:-1].all()
        return
    expected = torch.ones(9, 9).tril().bool() if backbone is Masked else torch.eye(9).bool()
    if backbone is Columns:
        expected[5:, :5] = True  # the larger half is unchanged
    assert torch.equal(depends, expected)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_impossible_shapes_and_settings_are_refused(backbone):
    with pytest.raises(UnsupportedEvent, match="one entry has no other"):
        backbone((1, 1), Scale, steps=1, width=4)
    with pytest.raises(ValueError, match="steps = 0 is not allowed"):
        backbone((3, 1), Scale, steps=0, width=4)


def test_the_network_is_residual():
    net = ResidualNetwork(3, 4, 8)
    assert not net(torch.randn(2, 3)).any(), "the last map starts at zero"
    with torch.no_grad():
        for block in net.blocks:
            for weight in block[1].parameters():
                weight.zero_()
        torch.nn.init.eye_(net.last.weight)
    x = torch.randn(2, 3)
    torch.testing.assert_close(net(x), net.first(x)[:, :4])
