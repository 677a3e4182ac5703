"""The affine maps of a step by compiled operators equal their formulas."""

from functools import partial

import pytest
import torch
from compared import agree, check_errors, results

from flows.affine import COMPILED, affine_channels

pytestmark = pytest.mark.usefixtures("way")


class Gated(torch.autograd.Function):
    """The operators of a coupling around an s and a shift; test_coupling_networks.py has them with networks."""

    @staticmethod
    def forward(ctx, gate, kept, moved, s, shift):
        ctx.save_for_backward(moved, s)
        ctx.gate, ctx.kept = COMPILED.index(gate), kept.shape[1]
        return torch.ops.invertbench.affine_coupling(kept, moved, s, shift, ctx.gate)

    @staticmethod
    def backward(ctx, of_y, of_log_det):
        of_x, of_s = torch.ops.invertbench.affine_coupling_backward(of_y, of_log_det, *ctx.saved_tensors, ctx.gate)
        return None, of_x[:, : ctx.kept], of_x[:, ctx.kept :], of_s, of_y[:, ctx.kept :]


def channels_formula(x, shift, log_scale):
    columns = (1, -1, *[1] * (x.ndim - 2))
    y = (x + shift.view(columns)) * log_scale.view(columns).exp()
    return y, x.shape[2:].numel() * log_scale.sum()


def coupling_formula(gate, kept, moved, s, shift):
    log_scale = gate(s)
    return torch.cat([kept, moved * log_scale.exp() + shift], 1), log_scale.flatten(1).sum(1)


GATED = {gate.__name__: (partial(Gated.apply, gate), partial(coupling_formula, gate)) for gate in COMPILED}
MAPS = {"channels": (affine_channels, channels_formula), **GATED}
COMPILED_MAPS = [(name, "compiled") for name in MAPS]
every_map = pytest.mark.parametrize(("name", "way"), [("channels", "plain"), *COMPILED_MAPS], indirect=["way"])
compiled_map = pytest.mark.parametrize(("name", "way"), COMPILED_MAPS, indirect=["way"])


def operands_of(name, shape, dtype=torch.float64, kept=2):
    events, all_channels, *spatial = shape
    if name == "channels":
        sizes = [shape, (all_channels,), (all_channels,)]
    else:
        sizes = [(events, kept, *spatial), *[(events, all_channels - kept, *spatial)] * 3]
    return [torch.randn(size, dtype=dtype) for size in sizes]


@every_map
def test_the_operators_equal_their_formulas(name, way, case):
    few = [(0, 3, 4), (2, 3, 0), (1, 3, 1), (5, 9), (3, 5, 7), (2, 6, 3, 5)]
    for shape in (*few, (70, 4, 16), (3, 4, 40, 41), (1, 3, 3000)):
        with case(shape=shape):
            agree(*MAPS[name], operands_of(name, shape))


@every_map
def test_operands_and_gradients_may_be_views(name, way):
    operands = operands_of(name, (4, 6, 3, 5))
    events = [operand for operand in operands if operand.ndim == 4]
    for view in (
        lambda x: x.transpose(2, 3),
        lambda x: x.flip(0)[1:],
        lambda x: torch.cat([x, x], 1).chunk(2, dim=1)[1],
        lambda x: x.to(memory_format=torch.channels_last),
    ):
        agree(*MAPS[name], [view(one) if any(one is other for other in events) else one for one in operands])
    function, formula = MAPS[name]
    operands = [operand.requires_grad_() for operand in operands_of(name, (3, 5, 4))]
    gradients = []
    for way in (function, formula):
        outputs = way(*operands)
        loss = outputs[0].transpose(1, 2).cumsum(1).sum() + sum(output.sum() for output in outputs[1:])
        gradients.append(torch.autograd.grad(loss, operands))
    torch.testing.assert_close(*gradients)


def test_second_derivatives_and_transforms(check_derivatives):
    check_derivatives(affine_channels, *operands_of("channels", (2, 4, 3)))
    operands = operands_of("channels", (2, 4, 3))
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        outcomes = (transform(function, argnums=(0, 1, 2))(*operands) for function in MAPS["channels"])
        torch.testing.assert_close(*outcomes)


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
@pytest.mark.parametrize("gate", COMPILED)
def test_gates_at_the_ends_of_the_range(gate, way):
    """Scale, log-scale and its derivative; the scale overflows and underflows where `exp` does, and NaN stays."""
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.float64, 4e-15)):
        points = [-760.0, -745, -104, -103, -88, -87, -20, -2, -1e-20, 0, 1e-20, 9, 88, 88.7, 89, 709, 710]
        s = torch.tensor([*points, -torch.inf, torch.inf, torch.nan], dtype=dtype)[:, None, None].requires_grad_()
        ones = torch.ones_like(s)
        operands = (ones[:, :0], ones, s, 0 * ones)
        (scale, log_scale), (_, expected) = (function(*operands) for function in GATED[gate.__name__])
        close = partial(torch.testing.assert_close, rtol=tolerance, equal_nan=True)
        close(scale, gate(s.double()).exp().to(dtype), atol=0)
        close(log_scale, expected, atol=tolerance)
        slopes = [torch.autograd.grad(logs.sum(), s)[0][scale.isfinite()] for logs in (log_scale, expected)]
        close(*slopes, atol=tolerance)


@compiled_map
def test_error_in_single_precision(name, way):
    check_errors(*MAPS[name], operands_of(name, (64, 32, 128), torch.float32))


@compiled_map
def test_the_same_for_any_number_of_threads(name, way, same_by_threads):
    operands = operands_of(name, (50, 4, 900), torch.float32)
    same_by_threads(lambda: results(MAPS[name][0], operands))


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_operands_that_do_not_fit_are_refused(way):
    kept, moved, s, shift = operands_of("coupling", (3, 4, 5))
    forward, backward = (torch.ops.invertbench.affine_coupling, torch.ops.invertbench.affine_coupling_backward)
    for wrong, error in ((s[:, :1], ValueError), (s[1:], ValueError), (s.float(), TypeError)):
        with pytest.raises(error, match="affine_coupling"):
            forward(kept, moved, wrong, shift, 0)
        with pytest.raises(error, match="affine_coupling"):
            backward(torch.cat([kept, moved], 1), torch.ones(3, dtype=s.dtype), moved, wrong, 0)
    with pytest.raises(ValueError, match="affine_coupling: kept"):
        forward(kept[:, :, 1:], moved, s, shift, 0)
    for gate in (-1, 3):
        with pytest.raises(ValueError, match=f"affine_coupling: gate {gate}"):
            forward(kept, moved, s, shift, gate)
        with pytest.raises(ValueError, match=f"affine_coupling: gate {gate}"):
            backward(torch.cat([kept, moved], 1), torch.ones(3, dtype=s.dtype), moved, s, gate)
    with pytest.raises(ValueError, match="actnorm"):
        torch.ops.invertbench.actnorm(moved, torch.ones(1, dtype=moved.dtype), torch.ones(2, dtype=moved.dtype))
