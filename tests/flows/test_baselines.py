"""Every baseline implements the protocol of a flow: log-det, inverse, samples, state and gradients."""

import math

import pytest
import torch

from flows import Dense, Density, MaskedCoupling, UnsupportedEvent
from flows.baselines import BASELINES as EVERY
from flows.baselines import baseline_options, build_baseline, find_baseline

BASELINES = [name for name in EVERY if not issubclass(find_baseline(name), Density)]  # see test_mixture.py
OPTIONS = {"realnvp": {"blocks": 1}, "maf": {"hidden_layers": 2}, "idensenet": {"depth": 2}}


def small(name, shape=(1, 4, 4), seed=0, **options):
    return build_baseline(name, shape, 2, 2, 6, seed, OPTIONS.get(name, {}) | options)


def trained(name, shape=(1, 4, 4), **options):
    """Return the flow in float64 and eval(), initialised, with noise on its weights."""
    flow = small(name, shape, **options).double()
    flow.initialise(torch.randn(16, *shape, dtype=torch.float64))
    with torch.no_grad():
        for weight in flow.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return flow.eval()


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def drawing(flow):
    """Return the generator of a flow with estimates as its arguments, none for others."""
    return [chance()] if flow.estimated else []


def exact_log_det(function, x):
    values = []
    for event in x:
        jacobian = torch.autograd.functional.jacobian(lambda v: function(v[None])[0].flatten(), event)
        values.append(torch.linalg.slogdet(jacobian.reshape(event.numel(), -1)).logabsdet)
    return torch.stack(values)


@pytest.mark.parametrize(
    ("name", "shape"),
    [(name, (1, 4, 4)) for name in BASELINES] + [(name, (3, 4, 8)) for name in ("realnvp", "maf", "iresnet")],
)
def test_a_bijection_with_its_log_det(name, shape):
    flow = trained(name, shape)
    x = torch.randn(2, *shape, dtype=torch.float64)
    z, log_det = flow(x)
    exact = exact_log_det(lambda v: flow(v)[0], x)
    if flow.estimated:  # the mean of many estimates, within four standard errors
        many = flow(x.repeat_interleave(400, dim=0), chance())[1].detach().view(2, -1)
        assert bool(((many.mean(1) - exact).abs() <= 4 * many.std(1) / 20).all()), (many.mean(1), exact)
    else:
        torch.testing.assert_close(log_det, exact, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        torch.testing.assert_close(flow.inverse(z), x, rtol=1e-8, atol=1e-8)
        y = z + 0.1 * torch.randn_like(z)
        torch.testing.assert_close(flow(flow.inverse(y))[0], y, rtol=1e-8, atol=1e-8)
    prior, total = flow.terms(x, *drawing(flow))
    torch.testing.assert_close(prior, -0.5 * (z.square() + math.log(2 * math.pi)).sum(1))
    torch.testing.assert_close(flow.log_prob(x, *drawing(flow)), prior + total)


@pytest.mark.parametrize("name", BASELINES)
def test_seeds_state_samples_empty_batches_and_autocast(name):
    flow = trained(name)
    x = torch.randn(3, 1, 4, 4, dtype=torch.float64)
    copy = small(name, seed=3).double().eval()
    copy.load_state_dict(flow.state_dict())
    torch.testing.assert_close(copy.log_prob(x, *drawing(copy)), flow.log_prob(x, *drawing(flow)))
    draws = flow.sample(5, generator=chance(1))
    assert draws.shape == (5, 1, 4, 4) and bool(draws.isfinite().all())
    torch.testing.assert_close(draws, copy.sample(5, generator=chance(1)))
    with torch.no_grad():
        z = torch.randn(5, 16, generator=chance(1), dtype=torch.float64)
        torch.testing.assert_close(flow(draws)[0], z, rtol=1e-8, atol=1e-8)
    flow, same, differently_seeded = small(name), small(name), small(name, seed=1)
    for value, repeated in zip(flow.state_dict().values(), same.state_dict().values(), strict=True):
        assert torch.equal(value, repeated)
    assert any(not torch.equal(a, b) for a, b in zip(flow.parameters(), differently_seeded.parameters(), strict=True))
    flow = trained(name).train()
    x = torch.randn(8, 1, 4, 4, dtype=torch.float64)
    flow.log_prob(x, *drawing(flow)).mean().backward()
    assert not [key for key, weight in flow.named_parameters() if weight.grad is None or not weight.grad.any()]
    flow = trained(name)
    for training in (True, False):
        flow.train(training)
        x = torch.empty(0, 1, 4, 4, dtype=torch.float64, requires_grad=True)
        log_prob = flow.log_prob(x)
        log_prob.sum().backward()
        assert log_prob.shape == (0,) and x.grad.shape == x.shape
        assert flow.inverse(flow(x)[0]).shape == x.shape
    flow, x = flow.float(), torch.randn(4, 1, 4, 4)
    expected = flow.log_prob(x, *drawing(flow))
    with torch.autocast("cpu", torch.bfloat16):
        log_prob = flow.log_prob(x, *drawing(flow))
        back = flow.inverse(flow(x)[0])
    assert log_prob.dtype == torch.float32
    torch.testing.assert_close(log_prob, expected, rtol=0.02, atol=0)
    torch.testing.assert_close(back, x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", BASELINES)
def test_impossible_sizes_and_shapes_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}: steps = 0 is not allowed; use a whole number from 1 up"):
        build_baseline(name, (1, 4, 4), 1, 0, 4, 0, {})
    if name != "maf":
        with pytest.raises(UnsupportedEvent, match=r"\(2, 16\) are not images"):
            build_baseline(name, (2, 16), 1, 1, 4, 0, {})
    assert {"levels", "steps", "width", "seed"}.isdisjoint(baseline_options(find_baseline(name)))


def test_real_nvp_masks_match_the_paper():
    """Checkerboards, channels, checkerboards with one more at the last level; each complements the previous one."""
    flow = build_baseline("realnvp", (1, 4, 4), 2, 3, 4, 0, {"blocks": 1})
    masks = {path: part.mask for level in flow.parts() for path, part in level if isinstance(part, MaskedCoupling)}
    kinds = [path.rpartition("/")[0].rstrip("0123456789") for path in masks]
    assert kinds == ["level0/checkerboard"] * 3 + ["level0/channels"] * 3 + ["level1/checkerboard"] * 4
    board = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1]] * 2)
    stacked = list(masks.values())
    for start, first in [(0, board), (3, torch.tensor([1, 1, 0, 0])), (6, board[:2, :2])]:
        number = 4 if start == 6 else 3
        for index, mask in enumerate(stacked[start : start + number]):
            assert torch.equal(mask.squeeze().long(), first if index % 2 == 0 else 1 - first)
    with pytest.raises(UnsupportedEvent, match="use at most 2 levels"):
        build_baseline("realnvp", (1, 4, 4), 3, 1, 4, 0, {})


def test_maf_has_the_values_and_the_inverse_of_zuko():
    from zuko.transforms import AutoregressiveTransform, MonotonicAffineTransform

    flow = trained("maf", (1, 3, 4))
    (dense, *_) = (module for _, module, _ in flow.trace(torch.zeros(1, 1, 3, 4).double()) if isinstance(module, Dense))
    reference = AutoregressiveTransform(lambda x: MonotonicAffineTransform(*dense.raw(x).unbind(-1)), 12)
    y = torch.randn(5, 12, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(dense.inverse(y), reference.inv(y))
        torch.testing.assert_close(dense(y)[0], reference(y))
        torch.testing.assert_close(dense(y)[1], reference.call_and_ladj(y)[1].sum(1))


@pytest.mark.parametrize("width", [1, 3, 8, 40])
def test_every_entry_of_maf_may_decide_later_ones(width):
    """Also with fewer units than entries: with zuko's masks only the first `width` entries would have an effect."""
    flow = build_baseline("maf", (1, 4, 4), 1, 1, width, 0, {}).double()
    with torch.no_grad():
        for weight in flow.parameters():
            weight.abs_().add_(0.1)  # nothing cancels, and every unit is active
    jacobian = torch.autograd.functional.jacobian(lambda v: flow(v[None])[0][0], torch.rand(1, 4, 4).double() + 1)
    jacobian = jacobian.reshape(16, 16)
    assert not jacobian.triu(1).any() and bool(jacobian.diagonal().all())
    assert bool(jacobian.tril(-1).any(0)[:-1].all())
