import pytest
import torch
from torch.distributions import Normal

from flows import ActNorm, make_coupling, make_split_prior
from flows.conditioners import GlowConditioner, WeightNormConditioner, ZeroConvolution

EVENTS = [(4, 3, 2), (5, 2, 2), (2, 1, 1), (4, 6), (3, 5)]
COUPLINGS = ["image", "glow", "sequence", "attention"]


def events(shape, n=3):
    return torch.randn(n, *shape, dtype=torch.float64)


@pytest.mark.parametrize("value", [0.0, 0.1, -2000.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_actnorm_leaves_the_scale_of_a_constant_channel(value, dtype):
    x = torch.randn(8, 2, 5, dtype=dtype)
    x[:, 0] = value
    module = ActNorm(2).to(dtype)
    module.initialise(x)
    y, log_det = module(x)
    assert log_det.isfinite()
    assert module.log_scale[0] == 0
    torch.testing.assert_close(y[:, 0], torch.zeros(8, 5, dtype=dtype), rtol=0, atol=1e-3)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("shape", EVENTS)
def test_coupling_keeps_the_first_half_and_scales_the_other_entry_by_entry(coupling, shape, perturb):
    module = perturb(make_coupling(coupling, shape, width=6))
    kept = shape[0] - shape[0] // 2
    x = events(shape)
    y, _ = module(x)
    assert module.kept == kept
    assert torch.equal(y[:, :kept], x[:, :kept])
    changed = x.clone()
    changed[:, kept:].add_(1)
    scale = module(changed)[0][:, kept:] - y[:, kept:]
    assert (scale > 0).all()
    torch.testing.assert_close(scale.log().flatten(1).sum(1), module(x)[1])
    assert not torch.equal(y[:, kept:], x[:, kept:])


@pytest.mark.parametrize("coupling", ["image", "glow"])
def test_convolutional_couplings_follow_their_definition(coupling, perturb):
    module = perturb(make_coupling(coupling, (4, 3, 3), width=5))
    x = events((4, 3, 3))
    y = module(x)[0][:, 2:]
    net, elu, relu = module.net, torch.nn.functional.elu, torch.relu
    if coupling == "image":
        head = net.last(elu(net.second(elu(net.first(x[:, :2])))))
    else:
        hidden = relu(net.first_norm(net.first(x[:, :2]))[0])
        head = net.last(relu(net.second_norm(net.second(hidden))[0]))
    shift, scale = head[:, :2], torch.sigmoid(head[:, 2:] + 2)
    moved = x[:, 2:] * scale + shift if coupling == "image" else (x[:, 2:] + shift) * scale
    torch.testing.assert_close(y, moved)


def test_sequence_coupling_has_no_context_in_time(perturb):
    module = perturb(make_coupling("sequence", (4, 6), width=5))
    x = events((4, 6))
    moved = x.roll(2, dims=2)
    torch.testing.assert_close(module(moved)[0], module(x)[0].roll(2, dims=2))
    weights = [p for name, p in make_coupling("sequence", (4, 6), width=5).named_parameters() if "weight" in name]
    assert len(weights) == 6
    for weight in weights:
        gram = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
        torch.testing.assert_close(gram, torch.eye(len(gram)), rtol=0, atol=1e-5)


def test_auto_chooses_a_network_for_images_and_for_sequences():
    assert type(make_coupling("auto", (4, 4, 4), 3).net) is type(make_coupling("image", (4, 4, 4), 3).net)
    assert type(make_coupling("auto", (4, 4), 3).net) is type(make_coupling("sequence", (4, 4), 3).net)


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("conditioner", [WeightNormConditioner, GlowConditioner])
def test_hidden_channels_start_with_zero_mean_and_unit_variance(conditioner, axes):
    x = 5 * torch.randn(32, 3, *[4] * axes, dtype=torch.float64) + 2
    net = conditioner(3, 3, 6, axes).double()
    net.initialise(x)
    if conditioner is GlowConditioner:
        first = net.first_norm(net.first(x))[0]
        second = net.second_norm(net.second(first.relu()))[0]
    else:
        first = net.first(x)
        second = net.second(torch.nn.functional.elu(first))
    for hidden in (first, second):
        values = hidden.transpose(0, 1).flatten(1)
        torch.testing.assert_close(values.mean(1), torch.zeros(6).double(), rtol=0, atol=1e-10)
        torch.testing.assert_close(values.var(1, correction=0), torch.ones(6).double())


@pytest.mark.parametrize("conditioner", [WeightNormConditioner, GlowConditioner])
def test_a_batch_of_images_equals_its_images_and_is_contiguous(conditioner, perturb):
    """Only a batch has its channels last, and only outside torch.func's transforms."""
    net = perturb(conditioner(3, 2, 6, 2))
    x = events((3, 4, 5))
    batch = net(x)
    torch.testing.assert_close(batch, tuple(map(torch.cat, zip(*map(net, x.split(1)), strict=True))))
    assert all(part.stride()[1:] == (20, 5, 1) for part in batch)
    torch.testing.assert_close(torch.func.vmap(net)(x[None])[1][0], batch[1])


def test_zero_convolution_scales_by_the_exponential_of_three_logs(perturb):
    module = perturb(ZeroConvolution(2, 3, 4))
    x = events((3, 4, 4))
    expected = module.convolution(x) * module.logs.exp() ** 3
    torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize("shape", [(4, 3, 2), (4, 6)])
def test_split_prior_is_the_density_of_a_gaussian_given_the_kept_half(shape, perturb, check_bijection):
    prior = perturb(make_split_prior(shape))
    x = events(shape)
    check_bijection(prior, x)
    z, log_det = prior(x)
    mean, raw = prior.net.last(x[:, :2]).chunk(2, dim=1)
    sigma = (5 * (raw / 5).tanh()).exp()
    expected = Normal(mean, sigma).log_prob(x[:, 2:]).flatten(1).sum(1)
    standard = Normal(0, 1).log_prob(z[:, 2:]).flatten(1).sum(1)
    torch.testing.assert_close(standard + log_det, expected)


def test_split_prior_starts_standard_and_stays_bounded():
    prior = make_split_prior((4, 3, 3))
    x = torch.randn(2, 4, 3, 3)
    assert torch.equal(prior(x)[0], x)
    with torch.no_grad():
        prior.net.last.convolution.bias.fill_(-1e4)
    z, log_det = prior(x)
    assert z.isfinite().all() and log_det.isfinite().all()
    torch.testing.assert_close(prior.inverse(z), x, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("convolutional", (4, 4), 3), ["'convolutional'", "image", "sequence"]),
        (("auto", (1, 4), 3), ["(1, 4)", "at least 2 channels", "squeeze"]),
        (("auto", (4, 4), 0), ["width = 0"]),
    ],
)
def test_coupling_refusals(arguments, parts):
    with pytest.raises(ValueError) as caught:
        make_coupling(*arguments)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("shape", [(4, 3, 2), (3, 5)])
def test_a_coupling_traces_as_one_graph(shape, perturb):
    """As plain PyTorch, which agrees with the compiled operators."""
    coupling, x = perturb(make_coupling("auto", shape, 4)), torch.randn(2, *shape, dtype=torch.float64)
    torch.compiler.reset()
    traced = torch.compile(coupling, fullgraph=True, backend="aot_eager")
    both = traced(x), coupling(x)
    torch.testing.assert_close(*both)
    leaves = list(coupling.parameters())
    gradients = (torch.autograd.grad(sum(y.square().sum() for y in outputs), leaves) for outputs in both)
    torch.testing.assert_close(*gradients)
