import itertools
import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from flows import AffineCoupling, Glow, UnsupportedEvent

EVENTS = [((1, 4, 4), 1), ((2, 4, 4), 2), ((1, 8, 8), 3), ((2, 8), 1), ((3, 8), 2), ((1, 16), 3), ((5, 1), 1)]
COUPLINGS = ["image", "glow", "sequence", "attention"]
SMALL = {"levels": 2, "steps": 1, "width": 4}


@pytest.mark.parametrize(("shape", "levels"), EVENTS)
def test_flow_is_a_bijection_with_its_log_det(shape, levels, everywhere, channelwise, perturb, check_bijection, case):
    for coupling, (prior, split_step) in itertools.product(COUPLINGS, (("standard", True), ("learned", False))):
        options = {"coupling": coupling, "prior": prior, "split_step": split_step}
        with case(**options):
            flow = Glow(shape, everywhere, channelwise, levels=levels, steps=1, width=5, **options)
            x = torch.randn(2, *shape, dtype=torch.float64)
            perturb(flow)
            z, log_det = flow(x)
            assert z.shape == (2, flow.dim) and log_det.shape == (2,)
            check_bijection(flow, x)
            prior_term = -0.5 * (z.square() + math.log(2 * math.pi)).sum(1)
            torch.testing.assert_close(flow.terms(x), (prior_term, log_det))
            torch.testing.assert_close(flow.log_prob(x), prior_term + log_det)


@pytest.mark.parametrize(("shape", "levels"), [((2, 4, 4), 2), ((2, 16), 2), ((5, 1), 1), ((8, 1), 1)])
def test_log_prob_of_an_affine_flow_is_the_exact_gaussian(shape, levels, everywhere, channelwise, perturb):
    flow = Glow(shape, everywhere, channelwise, coupling="glow", steps=2, levels=levels, width=4).double()
    for path, module, _ in flow.trace(torch.zeros(1, *shape).double()):
        if path.endswith(("actnorm", "layer", "mixer")):
            perturb(module)
    dim = flow.dim
    offset = flow(torch.zeros(1, *shape).double())[0][0]
    matrix = flow(torch.eye(dim).double().view(dim, *shape))[0].T - offset[:, None]
    mean = -torch.linalg.solve(matrix, offset)
    expected = MultivariateNormal(mean, precision_matrix=matrix.T @ matrix)
    x = torch.randn(5, *shape).double()
    torch.testing.assert_close(flow.log_prob(x), expected.log_prob(x.flatten(1)))
    draws = flow.sample(20_000, generator=torch.Generator().manual_seed(1)).flatten(1)
    white = (draws - mean) @ matrix.T
    torch.testing.assert_close(white.mean(0), torch.zeros(dim).double(), rtol=0, atol=0.05)
    torch.testing.assert_close(white.T.cov(), torch.eye(dim).double(), rtol=0, atol=0.06)


def test_float32_agrees_with_float64(channelwise, perturb):
    flow = perturb(Glow((3, 16, 16), channelwise, levels=2, steps=2, width=8, prior="learned"), 0.05)
    x = torch.randn(4, 3, 16, 16)
    exact = flow.log_prob(x.double())
    flow.float()
    torch.testing.assert_close(flow.log_prob(x).double(), exact, rtol=1e-6, atol=1e-3)
    torch.testing.assert_close(flow.inverse(flow(x)[0]), x, rtol=1e-3, atol=1e-3)


def test_latent_starts_with_the_halves_split_off_first(channelwise):
    flow = Glow((1, 4, 4), channelwise, **SMALL)
    x = torch.randn(2, 1, 4, 4)
    hidden = x
    for _, module, value in flow.trace(x):
        hidden = module(value)[0]
    z = flow(x)[0]
    torch.testing.assert_close(z[:, 8:], hidden.flatten(1))
    assert z.shape == (2, 16)


def test_trace_names_every_bijection_in_order(channelwise, everywhere):
    flow = Glow((1, 4, 4), everywhere, channelwise, prior="learned", split_step=True, **SMALL)
    x = torch.randn(2, 1, 4, 4)
    traced = list(flow.trace(x))
    step = ["actnorm", "mixer", "layer", "coupling"]
    assert [path for path, _, _ in traced] == [
        "level0/squeeze",
        *(f"level0/step0/{part}" for part in step),
        *(f"level0/split_step/{part}" for part in step),
        "level0/split_prior",
        "level1/squeeze",
        *(f"level1/step0/{part}" for part in step),
    ]
    assert torch.equal(traced[0][2], x)
    total = sum(module(value)[1] for _, module, value in traced)
    torch.testing.assert_close(total, flow(x)[1])
    linear = dict(flow.linear_layers())
    assert list(linear) == [path for path, _, _ in traced if path.endswith(("mixer", "layer"))]
    assert isinstance(linear["level0/step0/layer"], everywhere)
    assert isinstance(linear["level0/step0/mixer"], channelwise)
    flow = Glow((3, 8, 8), channelwise, levels=2, steps=1, width=4, split_step=True)
    widths = {
        path: module.net.second.weight.shape[0]
        for path, module, _ in flow.trace(torch.randn(1, 3, 8, 8))
        if isinstance(module, AffineCoupling)
    }
    assert widths == {"level0/step0/coupling": 4, "level0/split_step/coupling": 96, "level1/step0/coupling": 4}


@pytest.mark.parametrize("shape", [(1, 4, 4), (2, 8)])
def test_sample_is_deterministic_in_its_generator(shape, everywhere):
    flow = Glow(shape, everywhere, **SMALL)
    first, second = (flow.sample(3, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert first.shape == (3, *shape) and not first.requires_grad
    assert torch.equal(first, second)
    assert not torch.equal(first, flow.sample(3))
    z = torch.randn(3, flow.dim, generator=torch.Generator().manual_seed(7))
    cold = flow.sample(3, temperature=0.5, generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(flow(cold)[0], 0.5 * z, rtol=1e-4, atol=1e-4)
    assert flow.double().sample(2).dtype == torch.float64


def test_every_weight_gets_a_gradient(channelwise, perturb):
    flow = perturb(Glow((2, 4, 4), channelwise, channelwise, prior="learned", split_step=True, **SMALL))
    flow.log_prob(torch.randn(3, 2, 4, 4).double()).mean().backward()
    for name, parameter in flow.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda f: f(torch.randn(2, 1, 4, 8)), ["(2, 1, 4, 8)", "(1, 4, 4)", "(N, 1, 4, 4)"]),
        (lambda f: f.log_prob(torch.randn(1, 4, 4)), ["(1, 4, 4)", "expected (N, 1, 4, 4)"]),
        (lambda f: list(f.trace(torch.randn(2, 16))), ["(2, 16)"]),
        (lambda f: f.inverse(torch.randn(2, 1, 4, 4)), ["expected (N, 16)"]),
        (lambda f: f(torch.zeros(2, 1, 4, 4, dtype=torch.uint8)), ["torch.uint8", "dequantise"]),
        (lambda f: f(torch.zeros(2, 1, 4, 4, dtype=torch.float64)), ["torch.float64", "torch.float32"]),
        (lambda f: f.bfloat16()(torch.zeros(2, 1, 4, 4)), ["Glow: bfloat16 is too coarse", "in float32"]),
        (lambda f: f.half().sample(2), ["Glow: float16 is too coarse", "in float32"]),
        (lambda f: f.sample(0), ["n = 0"]),
        (lambda f: f.initialise(torch.empty(0, 1, 4, 4)), ["0 events", "non-empty"]),
        (lambda f: f.initialise(torch.full((2, 1, 4, 4), math.nan)), ["finite"]),
    ],
)
def test_wrong_inputs_are_refused_by_name(make, parts, channelwise):
    with pytest.raises(ValueError) as caught:
        make(Glow((1, 4, 4), channelwise, **SMALL))
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "part"),
    [
        ({"levels": 3}, UnsupportedEvent, "at most 2 levels"),
        ({"steps": 0}, ValueError, "steps = 0"),
        ({"width": 0}, ValueError, "width = 0"),
        ({"prior": "uniform"}, ValueError, "'uniform'"),
        ({"coupling": "additive"}, ValueError, "'additive'"),
        ({"gate": "closed"}, ValueError, "gate = 'closed' is unknown; use one of 'published', 'bounded'"),
    ],
)
def test_wrong_options_are_refused_by_name(options, error, part, channelwise):
    with pytest.raises(error, match=part):
        Glow((1, 4, 4), channelwise, **{**SMALL, **options})


def test_a_log_det_that_would_broadcast_is_refused(channelwise):
    class Column(channelwise):
        def forward(self, x):
            y, log_det = super().forward(x)
            return y, log_det.expand(len(x), 1)

    with pytest.raises(ValueError, match=r"level0/step0/layer \(Column\).*\(3, 1\)"):
        Glow((1, 4, 4), Column, **SMALL)(torch.randn(3, 1, 4, 4))
