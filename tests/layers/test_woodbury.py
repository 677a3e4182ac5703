import pytest
import torch

from layers.woodbury import Woodbury


def perturbed(shape, scale=0.3, **ranks):
    torch.manual_seed(0)
    layer = Woodbury(shape, **ranks).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return layer


# Channels below, between and above the rank, and a rank above n: every branch of the products.
CASES = [
    ((4, 12), {"rank_channels": 1, "rank_space": 2}),
    ((12, 3, 5), {"rank_channels": 3, "rank_space": 4}),
    ((5, 2, 3), {"rank_channels": 3, "rank_space": 2}),
    ((1, 7), {"rank_channels": 8, "rank_space": 4}),
    ((3, 1, 1), {"rank_channels": 2, "rank_space": 3}),
    ((2, 3), {"rank_channels": 5, "rank_space": 7}),
    ((5, 2, 9), {"rank_channels": 2, "rank_space": 3, "memory_efficient": True}),
    ((1, 7, 3), {"rank_channels": 2, "rank_space": 1, "memory_efficient": True}),
    ((2, 1, 4), {"memory_efficient": True}),
    ((3, 5), {"memory_efficient": True}),
]


@pytest.mark.parametrize(("shape", "ranks"), CASES)
def test_against_dense(shape, ranks):
    layer = perturbed(shape, **ranks)
    x = torch.randn(3, *shape, dtype=torch.float64)
    y, log_det = layer(x)
    matrix = layer.dense()
    assert (matrix - torch.eye(layer.dim)).abs().max() > 0.05
    torch.testing.assert_close(y.flatten(1), x.flatten(1) @ matrix.T)
    assert log_det.shape == ()
    torch.testing.assert_close(log_det, torch.linalg.slogdet(matrix)[1])
    torch.testing.assert_close(layer.inverse(y), x)
    torch.testing.assert_close(layer.inverter()(y), x)


def test_definition():
    """X <- (I + U_c V_c) X, then X <- X (I + U_s V_s)."""
    layer = perturbed((3, 2, 4), rank_channels=2, rank_space=3)
    x = torch.randn(1, 3, 2, 4, dtype=torch.float64)
    matrix = x.reshape(3, 8)
    channels, space = layer
    matrix = matrix + channels.u @ (channels.v @ matrix)
    matrix = matrix + (matrix @ space.u) @ space.v
    torch.testing.assert_close(layer(x)[0], matrix.reshape(1, 3, 2, 4))


def test_definition_of_the_memory_efficient_variant():
    """Channels, then width, then height, entry by entry; unequal sizes detect an exchange of axes."""
    layer = perturbed((3, 2, 4), rank_channels=2, rank_space=3, memory_efficient=True)
    x = torch.randn(1, 3, 2, 4, dtype=torch.float64)
    channels, width, height = (torch.eye(len(update.u)).double() + update.u @ update.v for update in layer)
    assert (len(channels), len(width), len(height)) == (3, 4, 2)
    expected = torch.einsum("cd,gh,wv,ndhw->ncgv", channels, height, width, x)
    y, log_det = layer(x)
    torch.testing.assert_close(y, expected)
    parts = [torch.linalg.slogdet(matrix)[1] for matrix in (channels, width, height)]
    torch.testing.assert_close(log_det, 2 * 4 * parts[0] + 3 * 2 * parts[1] + 3 * 4 * parts[2])


def test_memory_efficient_on_a_sequence_is_the_ordinary_layer():
    torch.manual_seed(0)
    ordinary = Woodbury((3, 8))
    torch.manual_seed(0)
    efficient = Woodbury((3, 8), memory_efficient=True)
    assert efficient.state_dict().keys() == ordinary.state_dict().keys()
    x = torch.randn(2, 3, 8)
    assert torch.equal(efficient(x)[0], ordinary(x)[0])


def test_memory_efficient_count():
    layer = Woodbury((12, 16, 8), rank_channels=5, rank_space=3, memory_efficient=True)
    assert sum(p.numel() for p in layer.parameters()) == 2 * 12 * 5 + 2 * (16 + 8) * 3


@pytest.mark.parametrize("length", [512, 256])
def test_counts(length):
    layer = Woodbury((4, length))
    assert sum(p.numel() for p in layer.parameters()) == 2 * 4 * 8 + 2 * length * 4


def test_starts_near_identity():
    torch.manual_seed(0)
    layer = Woodbury((16, 256), rank_channels=16, rank_space=16)
    for parameter in layer.parameters():
        assert 0.008 < parameter.std() < 0.012


@pytest.mark.parametrize("memory_efficient", [False, True])
def test_inverter_keeps_the_weights_it_saw(memory_efficient):
    layer = perturbed((3, 2, 4), rank_channels=1, memory_efficient=memory_efficient)
    x = torch.randn(2, 3, 2, 4, dtype=torch.float64)
    y, _ = layer(x)
    invert = layer.inverter()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(invert(y), x)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((3, 4), {"rank_channels": 1}),
        ((3, 4), {"rank_channels": 4}),
        ((3, 2, 2), {"rank_channels": 2, "memory_efficient": True}),
    ],
)
def test_gradients(shape, options):
    layer = perturbed(shape, rank_space=2, **options)
    names = [name for name, _ in layer.named_parameters()]
    x = torch.randn(2, *shape, dtype=torch.float64, requires_grad=True)

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (x, *layer.parameters()))
    assert torch.autograd.gradcheck(layer.inverse, (x,))


@pytest.mark.parametrize("ranks", [{"rank_channels": 0}, {"rank_space": -1}, {"rank_space": 2.0}])
def test_refuses_a_bad_rank(ranks):
    (name, value), *_ = ranks.items()
    with pytest.raises(ValueError, match=rf"woodbury: {name} = {value} .*from 1 up"):
        Woodbury((3, 4), **ranks)
