"""Several fused factors equal their product level by level."""

import itertools

import pytest
import torch

from layers.butterflies import fused, pairs
from layers.butterflies.plan import make_plan

PLANS = [
    (3072, {"levels": 10}),  # the paper's: an odd part of 3
    (96, {"order": "descending"}),
    (96, {"bi_direction": True}),
    (20, {}),  # fewer levels than a run may have, an odd part of 5
    (6, {}),  # one level
    (7, {}),  # none
    (8, {"levels": []}),
    (64, {}),  # no odd part
    (192, {"levels": [1, 3, 2, 4, 1, 1, 6]}),  # a level returns, another is left out
    (192, {"levels": [5, 2]}),
    (84, {"partition": [64, 16, 4], "levels": [6, 3, 0]}),
    (60, {"partition": [12, 48], "levels": [[2, 1, 2], [4, 3, 1]]}),
]


def weight_and_events(size, batch, dtype=torch.float64, shared=False, **options):
    plan = make_plan(size, shared=shared, **options)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 2, sum(plan.lengths), dtype=dtype, generator=generator)
    return plan, weight, torch.randn(size, batch, dtype=dtype, generator=generator)


@pytest.mark.parametrize(("size", "options"), PLANS)
def test_equal_to_level_by_level(size, options, case):
    for batch, shared, name in itertools.product((0, 1, 5), (False, True), ("apply", "apply_inverse")):
        with case(batch=batch, shared=shared, name=name):
            plan, weight, x = weight_and_events(size, batch, shared=shared, **options)
            expected = getattr(pairs, name)(weight, x, plan)
            got = getattr(fused, name)(weight, x, plan)
            assert got.shape == expected.shape
            scale = float(expected.abs().amax()) if expected.numel() else 1.0
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-14 * scale * max(1, len(plan.factors)))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("most", [1, 2, 3, 5, 8])
def test_runs_of_any_length(monkeypatch, most, shared):
    """The length of a run affects speed only."""
    runs = fused.runs
    monkeypatch.setattr(fused, "runs", lambda levels: runs(levels, most))
    plan, weight, x = weight_and_events(192, 3, shared=shared, levels=6)
    expected = pairs.apply(weight, x, plan)
    torch.testing.assert_close(fused.apply(weight, x, plan), expected)


@pytest.mark.parametrize(
    ("levels", "lengths"),
    [
        (range(1, 11), [4, 3, 3]),
        ((), []),
        ((1,), [1]),
        (range(5, 0, -1), [3, 2]),
        ((1, 2, 3, 3, 2, 1), [3, 3]),
        ((1, 2, 1, 2, 3, 4), [2, 4]),
    ],
)
def test_runs_are_few_and_short(levels, lengths):
    cuts = fused.runs(tuple(levels), 4)
    assert [cut.stop - cut.start for cut in cuts] == lengths
    assert [level for cut in cuts for level in tuple(levels)[cut]] == list(levels)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("size", "options"), [(24, {}), (24, {"levels": [3, 1, 2, 2]}), (20, {"partition": [16, 4]})])
def test_derivatives(size, options, shared):
    plan, weight, x = weight_and_events(size, 2, shared=shared, **options)
    weight.requires_grad_()
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda w, e: fused.apply(w, e, plan), (weight, x))
    assert torch.autograd.gradgradcheck(lambda w, e: fused.apply(w, e, plan), (weight, x))


def test_gradients_equal_those_of_level_by_level():
    """With a transposed gradient, which events in rows produce."""
    gradients = []
    for module in (pairs, fused):
        plan, weight, x = weight_and_events(192, 33)
        weight.requires_grad_()
        x.requires_grad_()
        rows = module.apply(weight, x, plan).T.contiguous()
        gradients.append(torch.autograd.grad((rows.square() * torch.linspace(0, 1, 192)).sum(), (weight, x)))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-11, atol=1e-11)


def test_transforms_of_functions():
    plan, weight, x = weight_and_events(12, 3)
    reverse = torch.func.jacrev(lambda e: fused.apply(weight, e, plan))(x)
    forward = torch.func.jacfwd(lambda e: fused.apply(weight, e, plan))(x)
    expected = torch.func.jacrev(lambda e: pairs.apply(weight, e, plan))(x)
    torch.testing.assert_close(reverse, expected)
    torch.testing.assert_close(forward, expected)


def test_complex_weights_on_real_events():
    plan, weight, x = weight_and_events(12, 3, dtype=torch.complex128)
    torch.testing.assert_close(fused.apply(weight, x.real, plan), pairs.apply(weight, x.real, plan))


def test_error_in_single_precision():
    """At most twice the error of level by level, compared with double precision."""
    plan, weight, x = weight_and_events(3072, 16, levels=10)
    expected = pairs.apply(weight, x, plan)
    error = [(module.apply(weight.float(), x.float(), plan) - expected).norm() for module in (pairs, fused)]
    assert error[1] <= 2 * error[0]


def test_memory_order_of_the_events_does_not_matter():
    plan, weight, x = weight_and_events(24, 3)
    expected = fused.apply(weight, x, plan)
    torch.testing.assert_close(fused.apply(weight, x.T.contiguous().T, plan), expected)


def test_pays_for_batches_of_several_levels_only():
    deep, shallow = make_plan(64), make_plan(64, levels=2)
    assert fused.pays(deep, 256) and not fused.pays(deep, 1)
    assert not fused.pays(shallow, 256) and not fused.pays(make_plan(7), 256)
