"""A layer within the flows of other libraries: their densities are its Gaussian, and training lowers their loss."""

import copy
import io
import pickle

import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, TransformedDistribution

from harness.timing.operations import perturb
from layers.adapters import adapt, to_distributions, to_freia, to_nflows, to_normflows, to_zuko
from layers.butterfly import Butterfly
from layers.conv1x1 import Conv1x1

D = 8


@pytest.fixture
def layer():
    """Return a butterfly on vectors, away from the identity."""
    layer = Butterfly((D, 1)).double()
    perturb(layer, 0.3, torch.Generator().manual_seed(0))
    return layer


def nflows_flow(layer):
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import CompositeTransform

    return Flow(CompositeTransform([to_nflows(layer)]), StandardNormal([D])).double(), log_prob


def normflows_flow(layer):
    import normflows

    flow = normflows.NormalizingFlow(normflows.distributions.DiagGaussian(D, trainable=False), [to_normflows(layer)])
    return flow.double(), log_prob


def freia_flow(layer):
    from FrEIA.framework import SequenceINN

    network = SequenceINN(D)
    network.append(to_freia(layer))
    return network, log_prob_of_network


def freia_graph(layer):
    from FrEIA.framework import GraphINN, InputNode, Node, OutputNode

    start = InputNode(D)
    node = Node(start, to_freia(layer), {})
    assert "FreiaModule" in str(node)
    return GraphINN([start, node, OutputNode(node)]), log_prob_of_network


def zuko_flow(layer):
    import zuko

    base = zuko.lazy.UnconditionalDistribution(
        zuko.distributions.DiagNormal, torch.zeros(D), torch.ones(D), buffer=True
    )
    flow = zuko.lazy.Flow([to_zuko(layer)], base).double()
    context = torch.zeros(1, 3).double()
    torch.testing.assert_close(
        flow(context).log_prob(torch.ones(1, D).double()), flow().log_prob(torch.ones(1, D).double())
    )
    return flow, lambda flow, x: flow().log_prob(x)


def torch_flow(layer):
    base = Independent(Normal(torch.zeros(D).double(), torch.ones(D).double()), 1)
    return TransformedDistribution(base, [to_distributions(layer).with_cache().inv]), log_prob


def pyro_flow(layer):
    import pyro.distributions as dist

    base = dist.Normal(torch.zeros(D).double(), torch.ones(D).double()).to_event(1)
    return dist.TransformedDistribution(base, [to_distributions(layer).inv]), log_prob


def log_prob(flow, x):
    return flow.log_prob(x)


def log_prob_of_network(network, x):
    z, log_det = network(x)
    return Normal(0, 1).log_prob(z).sum(1) + log_det


FLOWS = [nflows_flow, normflows_flow, freia_flow, freia_graph, zuko_flow, torch_flow, pyro_flow]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", FLOWS, ids=lambda make: make.__name__)
def test_the_density_is_the_layers_gaussian_and_training_lowers_the_loss(make, layer):
    flow, log_prob = make(layer)
    trained = flow if isinstance(flow, torch.nn.Module) else layer
    parameters = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, D, dtype=torch.float64, generator=generator) @ torch.randn(D, D, generator=generator).double()
    optimiser = torch.optim.Adam(parameters, 0.02)
    losses = []
    for _ in range(30):
        loss = -log_prob(flow, x).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1
    w = layer.dense()
    expected = MultivariateNormal(torch.zeros(D).double(), precision_matrix=w.T @ w)
    torch.testing.assert_close(log_prob(flow, x), expected.log_prob(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", FLOWS, ids=lambda make: make.__name__)
def test_a_flow_is_saved_copied_and_reloaded(make, layer, monkeypatch):
    """A layer of ours, and one of a library: each is in a class that is made when it is asked for."""
    # As torch has it; pyro replaces it once it is imported.
    monkeypatch.setattr(
        torch.distributions.Transform, "__getstate__", lambda transform: vars(transform) | {"_inv": None}
    )
    x = torch.randn(5, D, dtype=torch.float64)
    of_library = adapt(torch.distributions.AffineTransform)((D, 1), loc=1, scale="2 * ones(D)").double()
    for inner in (layer, of_library):
        flow, log_prob = make(inner)
        expected = log_prob(flow, x)  # before the copies: with a kept result
        file = io.BytesIO()
        torch.save(flow, file)
        file.seek(0)
        others = [torch.load(file, weights_only=False), pickle.loads(pickle.dumps(flow)), copy.deepcopy(flow)]
        assert all(type(other) is type(flow) for other in others)
        if isinstance(flow, torch.nn.Module):
            others.append(make(type(inner)((D, 1), **getattr(inner, "options", {})).double())[0])
            others[-1].load_state_dict(flow.state_dict())
            assert [type(part) for part in others[0].modules()] == [type(part) for part in flow.modules()]
        perturb(inner, 0.3, torch.Generator().manual_seed(6))
        for other in others:
            torch.testing.assert_close(log_prob(other, x), expected)
            assert not torch.allclose(log_prob(flow, x), expected)


@pytest.mark.filterwarnings("ignore")
def test_empty_batches_and_log_dets_in_float32_of_coarse_events():
    layer, x = Butterfly((D, 1)), torch.randn(3, D)
    perturb(layer, 0.3, torch.Generator().manual_seed(0))
    expected = layer.log_det()
    for library, directions in pairs(layer).items():
        for direction, sign in zip(directions, (1, -1), strict=True):
            with torch.autocast("cpu", torch.bfloat16):
                _, log_det = direction(x.bfloat16())
            torch.testing.assert_close(log_det, sign * expected.expand(3), msg=library)
            result, log_det = direction(x[:0])
            assert result.shape == (0, D) and log_det.shape == (0,), library


def pairs(layer):
    """Return, per library, forward and inverse of a layer, each returning a result and its log-det."""
    nflows, normflows, freia = to_nflows(layer), to_normflows(layer), to_freia(layer)
    shape = (D,) if layer.shape == (D, 1) else layer.shape
    module, transform, zuko = freia([shape]), to_distributions(layer), to_zuko(layer)()

    def by_freia(x, rev):
        (y,), log_det = module([x], rev=rev)
        return y, log_det

    def by(transform):
        return [lambda x, t=t: (t(x), t.log_abs_det_jacobian(x, t(x))) for t in (transform, transform.inv)]

    return {
        "nflows": (nflows.forward, nflows.inverse),
        "normflows": (normflows.inverse, normflows.forward),
        "FrEIA": (lambda x: by_freia(x, False), lambda y: by_freia(y, True)),
        "torch": by(transform),
        "zuko": by(zuko),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("vectors", [True, False])
def test_both_directions_with_their_log_dets(vectors, layer):
    layer = layer if vectors else Conv1x1((2, 3, 4)).double()
    perturb(layer, 0.1, torch.Generator().manual_seed(2))
    x = torch.randn(3, *((D,) if vectors else layer.shape), dtype=torch.float64)
    y, log_det = layer(x.reshape(3, *layer.shape))
    for library, (forward, inverse) in pairs(layer).items():
        result, there = forward(x)
        back, reverse = inverse(result)
        assert torch.equal(result, y.reshape(x.shape)), library
        torch.testing.assert_close(back, x, msg=library)
        torch.testing.assert_close(there, log_det.expand(3), msg=library)
        torch.testing.assert_close(reverse, -log_det.expand(3), msg=library)
        with pytest.raises(ValueError, match="does not end in the event shape"):
            forward(x[..., :-1])


def test_a_transform_takes_any_batch_and_its_cache_follows_the_weights(layer):
    plain, cached = to_distributions(layer), to_distributions(layer).with_cache()
    assert plain.with_cache(0) is plain and plain.domain.event_dim == 1
    x = torch.randn(2, 3, D, dtype=torch.float64)
    assert plain(x).shape == x.shape and plain.log_abs_det_jacobian(x, x).shape == (2, 3)
    assert plain(x[0, 0]).shape == (D,) and plain.log_abs_det_jacobian(x[0, 0], x).shape == ()
    y = cached(x)
    assert cached(x) is y and cached.inv(y) is x
    perturb(layer, 0.1, torch.Generator().manual_seed(3))
    torch.testing.assert_close(cached(x), plain(x))
    with torch.no_grad():
        cached(x)
    assert cached(x).requires_grad
    other = copy.deepcopy(layer)
    perturb(other, 0.1, torch.Generator().manual_seed(4))
    layer.load_state_dict(other.state_dict())
    torch.testing.assert_close(cached.inv(y.detach()), plain.inv(y.detach()))


def test_a_singular_layer_raises_in_the_inverse_of_every_library():
    layer = Conv1x1((D, 1), parameterisation="dense")
    torch.nn.init.zeros_(layer.weight)
    for _, inverse in pairs(layer).values():
        with pytest.raises(torch.linalg.LinAlgError):
            inverse(torch.zeros(2, D))
    with pytest.raises(ValueError, match=r"where events are \(8,\)"):
        to_freia(Butterfly((D, 1)))([(4,)])
