"""The affine maps of a step by compiled operators equal their formulas."""

import math
from functools import partial

import pytest
import torch

from flows import affine
from flows.affine import affine_channels, affine_coupling
from layers.kernels import load as kernels


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def way(request, monkeypatch):
    """Run a test with the compiled operators and with plain PyTorch."""
    if request.param == "compiled" and not kernels.load():
        pytest.skip(f"no compiled kernels: {kernels.backend().reason}")
    monkeypatch.setattr(affine, "LEAST_ENTRIES", 0 if request.param == "compiled" else math.inf)
    return request.param


def channels_formula(x, shift, log_scale):
    columns = (1, -1, *[1] * (x.ndim - 2))
    return ((x + shift.view(columns)) * log_scale.view(columns).exp(),)


def coupling_formula(kept, moved, log_scale, shift):
    return torch.cat([kept, moved * log_scale.exp() + shift], 1), log_scale.flatten(1).sum(1)


def channels(*operands):
    return (affine_channels(*operands),)


MAPS = {"channels": (channels, channels_formula), "coupling": (affine_coupling, coupling_formula)}


def operands_of(name, shape, dtype=torch.float64, kept=2):
    events, all_channels, *spatial = shape
    if name == "channels":
        sizes = [shape, (all_channels,), (all_channels,)]
    else:
        sizes = [(events, kept, *spatial), *[(events, all_channels - kept, *spatial)] * 3]
    return [torch.randn(size, dtype=dtype) for size in sizes]


def results(function, operands, dtype=torch.float64, differentiable=False):
    """Return the outputs and all gradients, for seeds that depend on the shapes alone."""
    leaves = [operand.detach().to(dtype).requires_grad_() for operand in operands]
    outputs = function(*leaves)
    torch.manual_seed(1)
    seeds = [torch.randn(output.shape, dtype=torch.float64).to(dtype) for output in outputs]
    return [*outputs, *torch.autograd.grad(outputs, leaves, seeds, create_graph=differentiable)]


def agree(name, operands):
    torch.testing.assert_close(*(results(function, operands) for function in MAPS[name]))


@pytest.mark.parametrize("name", MAPS)
def test_the_operators_equal_their_formulas(name, case):
    few = [(0, 3, 4), (2, 3, 0), (1, 3, 1), (5, 9), (3, 5, 7), (2, 6, 3, 5)]
    for shape in (*few, (70, 4, 16), (3, 4, 40, 41), (1, 3, 3000)):
        with case(shape=shape):
            agree(name, operands_of(name, shape))


@pytest.mark.parametrize("name", MAPS)
def test_operands_may_be_views(name):
    operands = operands_of(name, (4, 6, 3, 5))
    events = [operand for operand in operands if operand.ndim == 4]
    for view in (
        lambda x: x.transpose(2, 3),
        lambda x: x.flip(0)[1:],
        lambda x: torch.cat([x, x], 1).chunk(2, dim=1)[1],
        lambda x: x.to(memory_format=torch.channels_last),
    ):
        agree(name, [view(one) if any(one is other for other in events) else one for one in operands])


@pytest.mark.parametrize("name", MAPS)
def test_gradients_may_be_views(name):
    function, formula = MAPS[name]
    operands = [operand.requires_grad_() for operand in operands_of(name, (3, 5, 4))]
    found = []
    for way in (function, formula):
        outputs = way(*operands)
        loss = outputs[0].transpose(1, 2).cumsum(1).sum() + sum(output.sum() for output in outputs[1:])
        found.append(torch.autograd.grad(loss, operands))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("name", MAPS)
def test_second_derivatives(name):
    operands = tuple(operand.requires_grad_() for operand in operands_of(name, (2, 4, 3)))
    assert torch.autograd.gradcheck(MAPS[name][0], operands)
    assert torch.autograd.gradgradcheck(MAPS[name][0], operands)
    first, differentiable = (results(MAPS[name][0], operands, differentiable=way) for way in (False, True))
    torch.testing.assert_close(first, differentiable)


def test_scales_at_the_ends_of_the_range():
    """The scale overflows and underflows where `exp` does, and NaN stays."""
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-14)):
        points = [-760.0, -745, -104, -103, -88, -87, -1e-20, 0, 1e-20, 88, 88.7, 89, 709, 710, -torch.inf, torch.inf]
        log_scale = torch.tensor([*points, torch.nan], dtype=dtype)[None, None]
        ones, zeros = torch.ones_like(log_scale), torch.zeros_like(log_scale)
        y, _ = affine_coupling(ones[:, :0], ones, log_scale, zeros)
        torch.testing.assert_close(y, log_scale.exp(), rtol=tolerance, atol=0, equal_nan=True)


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
@pytest.mark.parametrize("name", MAPS)
def test_error_in_single_precision(name, way):
    """Compared with double precision, the error is at most twice that of the formulas."""
    operands = operands_of(name, (64, 32, 128), torch.float32)
    truth = results(MAPS[name][1], operands)
    ours, plain = (results(function, operands, torch.float32) for function in MAPS[name])
    for i, (a, b, true) in enumerate(zip(ours, plain, truth, strict=True)):
        assert (a.double() - true).norm() <= 2 * (b.double() - true).norm() + 1e-12, i


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
@pytest.mark.parametrize("name", MAPS)
def test_the_same_for_any_number_of_threads(name, way):
    operands, threads, found = operands_of(name, (50, 4, 900), torch.float32), torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            found.append(results(MAPS[name][0], operands, torch.float32))
    finally:
        torch.set_num_threads(threads)
    for result in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], result, strict=True))


@pytest.mark.parametrize("name", MAPS)
def test_transforms(name):
    operands = operands_of(name, (2, 4, 3))
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        found = (transform(function, argnums=(0, 1, 2))(*operands) for function in MAPS[name])
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_operands_that_do_not_fit_are_refused(way):
    kept, moved, log_scale, shift = operands_of("coupling", (3, 4, 5))
    coupling = partial(torch.ops.invertbench.affine_coupling, kept, moved)
    for wrong, error in ((log_scale[:, :1], ValueError), (log_scale[1:], ValueError), (log_scale.float(), TypeError)):
        with pytest.raises(error, match="affine_coupling"):
            coupling(wrong, shift)
    with pytest.raises(ValueError, match="affine_coupling: kept"):
        torch.ops.invertbench.affine_coupling(kept[:, :, 1:], moved, log_scale, shift)
    with pytest.raises(ValueError, match="actnorm"):
        torch.ops.invertbench.actnorm(moved, torch.ones(1, dtype=moved.dtype), torch.ones(2, dtype=moved.dtype))
