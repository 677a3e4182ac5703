import pytest
import torch

from layers.butterflies import pairs
from layers.butterflies.pairs import ButterflyPart, ButterflyPlan
from layers.butterflies.stages import apply_stages, product_matrix, stages_of_plan

PLANS = [
    ButterflyPlan((ButterflyPart(8, (1, 2, 3)),)),
    ButterflyPlan((ButterflyPart(12, (2, 1, 2)),), shared=True),
    ButterflyPlan((ButterflyPart(8, (3, 1)), ButterflyPart(3, ()), ButterflyPart(6, (1,)))),
    ButterflyPlan((ButterflyPart(8, (2,)), ButterflyPart(2, (1, 1))), shared=True),
    ButterflyPlan((ButterflyPart(5, ()),)),
]


def random_weight(plan, width, dtype):
    torch.manual_seed(0)
    return torch.randn(sum(plan.lengths), 2 * width, 2 * width, dtype=dtype)


def chains_of(weight, plan):
    """Return every part's (stage, matrices), the first applied first."""
    left = iter(weight.split(plan.lengths) if plan.lengths else ())
    return [[(stage, next(left)) for stage in part] for part in stages_of_plan(plan, weight.shape[-1] // 2)]


def apply(weight, x, plan, *, backwards=False):
    parts = x.split([weight.shape[-1] // 2 * size for size in plan.sizes])
    chains = [chain[::-1] if backwards else chain for chain in chains_of(weight, plan)]
    return torch.cat([apply_stages(chain, part) for chain, part in zip(chains, parts, strict=True)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("plan", PLANS)
def test_blocks_of_one_are_the_butterfly(plan, dtype):
    weight = random_weight(plan, 1, dtype)
    scalars = weight.permute(1, 2, 0)
    x = torch.randn(sum(plan.sizes), 3, dtype=torch.float64)
    torch.testing.assert_close(apply(weight, x, plan), pairs.apply(scalars, x, plan))
    inverse = torch.linalg.inv(weight)
    expected = pairs.apply_inverse(pairs.invert_weight(scalars), x, plan)
    torch.testing.assert_close(apply(inverse, x, plan, backwards=True), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("plan", PLANS)
def test_the_result_equals_the_product_of_the_stages(plan, width, dtype):
    weight = random_weight(plan, width, dtype)
    matrix = product_matrix(chains_of(weight, plan), [size * width for size in plan.sizes], weight)
    x = torch.randn(sum(plan.sizes) * width, 4, dtype=dtype)
    y = apply(weight, x, plan)
    torch.testing.assert_close(y, matrix @ x)
    torch.testing.assert_close(apply(torch.linalg.inv(weight), y, plan, backwards=True), x)


@pytest.mark.parametrize("plan", PLANS[1:3])
def test_gradients(plan):
    weight = random_weight(plan, 2, torch.complex128).requires_grad_()
    x = torch.randn(sum(plan.sizes) * 2, 2, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(lambda weight, x: apply(weight, x, plan), (weight, x), fast_mode=True)


def test_an_empty_batch():
    plan = PLANS[2]
    weight = random_weight(plan, 3, torch.float64)
    assert apply(weight, torch.empty(51, 0, dtype=torch.float64), plan).shape == (51, 0)


def test_real_weights_take_float32_events():
    plan = PLANS[0]
    weight = random_weight(plan, 2, torch.float32)
    x = torch.randn(16, 2)
    assert apply(weight, x, plan).dtype == torch.float32
    assert apply(weight.to(torch.complex64), x, plan).dtype == torch.complex64
