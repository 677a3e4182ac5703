"""Residual blocks: bounded operator norms, unbiased estimates of the log-det and the fixed point of the inverse."""

import math

import pytest
import torch
from torch import nn

from flows.baselines.residual import CLipSwish, DenselyConnected, LipSwish, ThreeConvolutions
from flows.contraction import Contraction, Network, NoFixedPoint, Series, SpectralConvolution

SHAPE = (2, 4, 4)
EXACT_TERMS = Series(60)


def three(limit=0.9, activation=LipSwish, scale=4.0):
    net = ThreeConvolutions(SHAPE, 5, limit, activation, first=True).double()
    return enlarge(net, scale)


def dense(limit=0.98, scale=4.0):
    return enlarge(DenselyConnected(SHAPE, 4, 2, limit).double(), scale)


def enlarge(net, scale):
    """Enlarge the weights beyond the limit and the biases."""
    with torch.no_grad():
        for name, weight in net.named_parameters():
            weight.mul_(scale) if name.endswith("weight") else weight.add_(0.3 * torch.randn_like(weight))
    return net.eval()


def matrix(convolution, weight):
    """Return the matrix of the convolution, column by column."""
    units = torch.eye(math.prod(convolution.shape), dtype=weight.dtype).view(-1, *convolution.shape)
    return convolution.convolve(units, weight).flatten(1).T


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("limit", [0.5, 0.98])
def test_the_norm_is_limited_and_small_weights_are_unchanged(kernel, limit):
    convolution = SpectralConvolution(3, 5, kernel, (4, 6), limit).double().eval()
    with torch.no_grad():
        convolution.weight.mul_(10)
        norm = torch.linalg.matrix_norm(matrix(convolution, convolution.normalised()), 2).item()
        # The power iteration estimates from below, with as many steps as in an audit.
        assert limit * (1 - 1e-9) <= norm <= limit * 1.01
        convolution.weight.mul_(1e-3)
        assert torch.equal(convolution.normalised(), convolution.weight)


def test_norms_are_updated_in_training_and_fixed_in_eval():
    convolution = SpectralConvolution(3, 5, 3, (4, 4), 0.9).double()
    optimiser = torch.optim.SGD(convolution.parameters(), lr=0.05)
    for _ in range(40):  # training that increases the norm
        optimiser.zero_grad()
        (-convolution.normalised().square().sum() - convolution.weight.square().sum()).backward()
        optimiser.step()
    norm = torch.linalg.matrix_norm(matrix(convolution, convolution.normalised()), 2)
    assert norm.item() == pytest.approx(0.9, rel=1e-2)
    convolution.eval()
    norm = torch.linalg.matrix_norm(matrix(convolution, convolution.normalised()), 2)
    assert norm.item() == pytest.approx(0.9, rel=1e-3)


@pytest.mark.parametrize(("activation", "limit"), [(LipSwish, 1.0), (CLipSwish, 1.0), (nn.ELU, 1.0)])
def test_slopes_of_activations(activation, limit):
    function = activation().double()
    x = torch.linspace(-12, 12, 20001, dtype=torch.float64)[:, None].requires_grad_()
    y = function(x)
    slopes = torch.stack([torch.autograd.grad(y[:, c].sum(), x, retain_graph=True)[0] for c in range(y.shape[1])])
    steepest = slopes.norm(dim=0).max().item()
    assert 0.99 < steepest <= limit + 1e-12


@pytest.mark.parametrize("make", [three, dense])
def test_the_lipschitz_bound_holds_and_is_below_one(make):
    net = make()
    weights = net.weights()
    named = net.convolutions()
    norms = [
        torch.linalg.matrix_norm(weight.flatten(1) if weight.shape[-1] == 1 else matrix(convolution, weight), 2).item()
        for (_, convolution), weight in zip(named, weights, strict=True)
    ]
    assert named[0][1].limit <= max(norms) <= named[0][1].limit * 1.01
    bound = net.lipschitz(norms)
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


class Multiple(Network):
    """g(x) = factor x; the estimated traces D factor^k are exact for every vector of signs."""

    def __init__(self, factor=0.7):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor, dtype=torch.float64))

    def forward(self, x, weights):
        return self.factor * x

    def lipschitz(self, norms):
        return abs(self.factor.item())


@pytest.mark.parametrize("factor", [0.7, -0.7])
@pytest.mark.parametrize("terms", [1, 2, 7, 100])
def test_the_series_has_the_required_number_of_terms(terms, factor):
    block = Contraction(Multiple(factor), Series(terms), Series(terms)).eval()
    log_det = block(torch.randn(3, *SHAPE, dtype=torch.float64), torch.Generator().manual_seed(0))[1]
    wanted = 32 * sum(-((-factor) ** k) / k for k in range(1, terms + 1))
    torch.testing.assert_close(log_det, torch.full((3,), wanted, dtype=torch.float64))
    off = abs(wanted / 32 - math.log(1 + factor))
    assert off <= block.bias(0.7) + 1e-12
    assert factor > 0 or terms == 100 or block.bias(0.7) <= 2 * off  # -0.7 is nearly the worst case
    assert Series(terms, 0.5).bias(0.7) == 0


@pytest.mark.parametrize("make", [three, dense])
def test_value_and_gradient_equal_those_of_normflows(make):
    """For the same signs: the series, and the gradient from one vector-Jacobian product."""
    from normflows.flows.residual import basic_logdet_estimator, neumann_logdet_estimator

    net, terms = make(), 6
    x = torch.randn(3, *SHAPE, dtype=torch.float64)
    value = Contraction(net, Series(terms), Series(terms)).eval()(x, torch.Generator().manual_seed(0))[1]
    gradients = torch.autograd.grad(value.sum(), list(net.parameters()), allow_unused=True)

    signs = 2.0 * torch.randint(0, 2, x.shape, generator=torch.Generator().manual_seed(0)).double() - 1
    start = x.clone().requires_grad_()
    g = net(start, net.weights())
    reference = basic_logdet_estimator(g, start, terms, signs, lambda k: 1.0, training=False)
    torch.testing.assert_close(value, reference)
    surrogate = neumann_logdet_estimator(g, start, terms - 1, signs, lambda k: 1.0, training=True)
    wanted = torch.autograd.grad(surrogate.sum(), list(net.parameters()), allow_unused=True)
    compared = [pair for pair in zip(gradients, wanted, strict=True) if pair[1] is not None]
    assert len(compared) >= 5
    for gradient, expected in compared:
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("series", [EXACT_TERMS, Series(2, 0.5)])
def test_the_gradient_equals_that_of_the_exact_log_det(series):
    net = three()
    x = torch.randn(*SHAPE, dtype=torch.float64)
    block = Contraction(net, series, series).eval()
    start = x[None].clone().requires_grad_()
    jacobian = torch.autograd.functional.jacobian(lambda v: block.map(v).flatten(), start, create_graph=True)
    (wanted,) = torch.autograd.grad(torch.linalg.slogdet(jacobian.reshape(32, 32)).logabsdet, start)
    many = x.expand(4000, *SHAPE).clone().requires_grad_()
    (gradients,) = torch.autograd.grad(block(many, torch.Generator().manual_seed(0))[1].sum(), many)
    error = gradients.std(0) / math.sqrt(len(many))
    assert bool(((gradients.mean(0) - wanted[0]).abs() <= 4.5 * error).all()) and bool((error < 0.05).all())
    assert wanted.abs().max() > 20 * error.max()


def test_factors_of_the_roulette_and_the_gradient_without_bias():
    net, x, chance = Multiple(0.5), torch.zeros(1, *SHAPE, dtype=torch.float64), torch.Generator().manual_seed(0)
    block = Contraction(net, Series(1, 0.5), Series(1)).train()
    drawn = torch.stack([torch.autograd.grad(block(x, chance)[1].sum(), net.factor)[0] for _ in range(3000)])
    mean, error = mean_and_error(drawn)
    assert abs(mean - 32 / 1.5) < 4 * error < 1.5  # d/da 32 log(1 + a)
    drawn = Series(3, 0.4).draw(200_000, torch.Generator().manual_seed(0))
    assert torch.equal(drawn[:3], torch.ones_like(drawn[:3]))
    torch.testing.assert_close(drawn[:7].mean(1), torch.ones(7).double(), rtol=0, atol=0.05)
    assert bool(((drawn > 0).int().diff(dim=0) <= 0).all())  # once stopped, it does not continue


def test_an_estimate_depends_on_the_generator_state_only():
    block = Contraction(three(), Series(2, 0.5), Series(4, 0.5)).eval()
    x = torch.randn(3, *SHAPE, dtype=torch.float64)
    first, repeated, differently_seeded = (block(x, torch.Generator().manual_seed(seed))[1] for seed in (0, 0, 1))
    assert torch.equal(first, repeated) and not torch.equal(first, differently_seeded)
    narrow = block.float()(x.float(), torch.Generator().manual_seed(0))[1]
    torch.testing.assert_close(narrow.double(), first, rtol=1e-4, atol=1e-4)


class Turning(Multiple):
    """g(x) = -i x on pairs of entries: its iterates neither converge nor diverge."""

    def forward(self, x, weights):
        real, imaginary = x.chunk(2, dim=1)
        return torch.cat([imaginary, -real], dim=1)


@pytest.mark.parametrize(("net", "message"), [(Turning(), "not converged after 2000"), (Multiple(1.1), "inverse grow")])
def test_a_map_that_is_no_contraction_is_not_inverted(net, message):
    block = Contraction(net, EXACT_TERMS, EXACT_TERMS).eval()
    with pytest.raises(NoFixedPoint, match=message), torch.no_grad():
        block.inverse(torch.randn(4, *SHAPE, dtype=torch.float64))
