"""What residual rows rest on: operator norms that keep their limits, estimates without bias, a fixed point."""

import math

import normflows
import pytest
import torch
from torch import nn

from flows.baselines.contraction import Contraction, NoFixedPoint, Series
from flows.baselines.contraction_nets import DenselyConnected, ThreeConvolutions
from flows.baselines.lipschitz import CLipSwish, LipSwish, SpectralConvolution

SHAPE = (2, 4, 4)
EXACT_TERMS = Series(60)


def three(limit=0.9, activation=LipSwish, scale=4.0):
    net = ThreeConvolutions(SHAPE, 5, limit, activation, first=True).double()
    return enlarge(net, scale)


def dense(limit=0.98, scale=4.0):
    return enlarge(DenselyConnected(SHAPE, 4, 2, limit).double(), scale)


def enlarge(net, scale):
    """Weights that the limit cuts down, biases away from zero."""
    with torch.no_grad():
        for name, weight in net.named_parameters():
            weight.mul_(scale) if name.endswith("weight") else weight.add_(0.3 * torch.randn_like(weight))
    return net.eval()


def matrix(convolution, weight):
    """The convolution as a matrix, column by column."""
    units = torch.eye(math.prod(convolution.shape), dtype=weight.dtype).view(-1, *convolution.shape)
    return convolution.convolve(units, weight).flatten(1).T


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("limit", [0.5, 0.98])
def test_the_norm_is_cut_to_the_limit_and_small_weights_stay(kernel, limit):
    convolution = SpectralConvolution(3, 5, kernel, (4, 6), limit).double().eval()
    with torch.no_grad():
        convolution.weight.mul_(10)
        norm = torch.linalg.matrix_norm(matrix(convolution, convolution.normalised()), 2)
        assert norm.item() == pytest.approx(limit, rel=1e-3)
        convolution.weight.mul_(1e-3)
        assert torch.equal(convolution.normalised(), convolution.weight)


def test_norms_follow_weights_that_move_in_training_and_stay_in_evaluation():
    convolution = SpectralConvolution(3, 5, 3, (4, 4), 0.9).double()
    optimiser = torch.optim.SGD(convolution.parameters(), lr=0.05)
    for _ in range(40):  # training that pulls the norm up
        optimiser.zero_grad()
        (-convolution.normalised().square().sum() - convolution.weight.square().sum()).backward()
        optimiser.step()
    convolution.eval()
    norm = torch.linalg.matrix_norm(matrix(convolution, convolution.normalised()), 2)
    assert norm.item() == pytest.approx(0.9, rel=1e-3)


def test_our_norm_is_normflows_norm():
    """An implementation of its own, of the authors' code of Residual Flow."""
    theirs = normflows.nets.lipschitz.InducedNormConv2d(3, 5, 3, 1, 1, coeff=0.9, n_iterations=200)
    theirs(torch.randn(1, 3, 4, 6))
    theirs.weight.data.mul_(10)
    ours = SpectralConvolution(3, 5, 3, (4, 6), 0.9).eval()
    ours.weight.data.copy_(theirs.weight.data)
    torch.testing.assert_close(ours.normalised(), theirs.compute_weight(update=True), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("activation", "limit"), [(LipSwish, 1.0), (CLipSwish, 1.0), (nn.ELU, 1.0)])
def test_slopes_of_activations(activation, limit):
    one = activation().double()
    x = torch.linspace(-12, 12, 20001, dtype=torch.float64)[:, None].requires_grad_()
    y = one(x)
    slopes = torch.stack([torch.autograd.grad(y[:, c].sum(), x, retain_graph=True)[0] for c in range(y.shape[1])])
    steepest = slopes.norm(dim=0).max().item()
    assert 0.99 < steepest <= limit + 1e-12


@pytest.mark.parametrize("make", [three, dense])
def test_the_bound_holds_and_is_below_one(make):
    net = make()
    weights = net.weights()
    norms = [
        torch.linalg.matrix_norm(matrix(convolution, weight), 2).item()
        for (_, convolution), weight in zip(net.convolutions(), weights, strict=True)
        if convolution.weight.shape[-1] > 1
    ]
    named = net.convolutions()
    full = [
        torch.linalg.matrix_norm(weight.flatten(1) if weight.shape[-1] == 1 else matrix(convolution, weight), 2).item()
        for (_, convolution), weight in zip(named, weights, strict=True)
    ]
    assert norms and max(full) <= named[0][1].limit * 1.001
    bound = net.lipschitz(full)
    x = torch.randn(6, *SHAPE, dtype=torch.float64)
    for event in x:
        jacobian = torch.autograd.functional.jacobian(lambda v: net(v[None], weights)[0].flatten(), event)
        assert torch.linalg.matrix_norm(jacobian.reshape(32, 32), 2).item() <= bound < 1


def exact(block, x):
    jacobian = torch.autograd.functional.jacobian(lambda v: block.map(v[None])[0].flatten(), x)
    return torch.linalg.slogdet(jacobian.reshape(32, 32)).logabsdet


def mean_and_error(values):
    return values.mean().item(), values.std().item() / math.sqrt(len(values))


@pytest.mark.parametrize("make", [three, dense])
@pytest.mark.parametrize("train", [False, True])
def test_roulette_is_unbiased(make, train):
    block = Contraction(make(), Series(2, 0.5), Series(4, 0.5)).train(train)
    x = torch.randn(*SHAPE, dtype=torch.float64)
    chance = torch.Generator().manual_seed(0)
    passes = 400 if train else 1  # one roulette for a batch in training
    values = torch.cat([block(x.expand(2000 // passes, *SHAPE), chance)[1].detach() for _ in range(passes)])
    block.eval()
    mean, error = mean_and_error(values)
    assert abs(mean - exact(block, x).item()) < 4 * error and error < 0.2


def test_few_terms_are_biased_and_many_are_not():
    x = torch.randn(*SHAPE, dtype=torch.float64)
    net = three(activation=nn.ELU)
    errors = {}
    for terms in (1, 60):
        block = Contraction(net, Series(terms), Series(terms)).eval()
        chance = torch.Generator().manual_seed(0)
        mean, error = mean_and_error(block(x.expand(2000, *SHAPE), chance)[1].detach())
        errors[terms] = abs(mean - exact(block, x).item()) / error
    assert errors[60] < 4 < errors[1]


def test_factors_of_the_roulette():
    drawn = Series(3, 0.4).draw(200_000, torch.Generator().manual_seed(0))
    assert torch.equal(drawn[:3], torch.ones_like(drawn[:3]))
    torch.testing.assert_close(drawn[:7].mean(1), torch.ones(7).double(), rtol=0, atol=0.05)
    assert bool(((drawn > 0).int().diff(dim=0) <= 0).all())  # once stopped, it stays so


def test_the_gradient_is_that_of_the_exact_log_det():
    net = three()
    x = torch.randn(*SHAPE, dtype=torch.float64)
    block = Contraction(net, EXACT_TERMS, EXACT_TERMS).eval()
    weight = net.layers[1].weight

    start = x[None].clone().requires_grad_()
    jacobian = torch.autograd.functional.jacobian(lambda v: block.map(v).flatten(), start, create_graph=True).reshape(
        32, 32
    )
    wanted = torch.autograd.grad(torch.linalg.slogdet(jacobian).logabsdet, (weight, start))
    many = x.expand(4000, *SHAPE).clone().requires_grad_()
    found = torch.autograd.grad(block(many, torch.Generator().manual_seed(0))[1].mean(), (weight, many))
    torch.testing.assert_close(found[0], wanted[0], rtol=0.1, atol=0.03 * wanted[0].abs().max().item())
    torch.testing.assert_close(found[1].sum(0), wanted[1][0], rtol=0.1, atol=0.05 * wanted[1].abs().max().item())


def test_an_estimate_is_a_function_of_the_state_that_it_draws_from():
    block = Contraction(three(), Series(2, 0.5), Series(4, 0.5)).eval()
    x = torch.randn(3, *SHAPE, dtype=torch.float64)
    one, same, other = (block(x, torch.Generator().manual_seed(seed))[1] for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)
    narrow = block.float()(x.float(), torch.Generator().manual_seed(0))[1]
    torch.testing.assert_close(narrow.double(), one, rtol=1e-4, atol=1e-4)


def test_what_is_no_contraction_has_no_fixed_point():
    block = Contraction(three(), EXACT_TERMS, EXACT_TERMS).eval()
    for convolution in block.net.layers:
        convolution.limit = 3.0
    with pytest.raises(NoFixedPoint, match="moves still after 2000"), torch.no_grad():
        block.inverse(10 * torch.randn(4, *SHAPE, dtype=torch.float64))
