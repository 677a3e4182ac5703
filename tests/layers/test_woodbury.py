import torch
from compared import follows

from layers.woodbury import Woodbury


def test_definitions_of_both_variants(perturbed):
    """X <- (I + U_c V_c) X, then X <- X (I + U_s V_s); unequal sizes detect an exchange of axes."""

    def matrices(layer):
        return [torch.eye(len(update.u)).double() + update.u @ update.v for update in layer]

    layer = perturbed(Woodbury, (3, 2, 4), rank_channels=2, rank_space=3)
    channels, space = matrices(layer)
    follows(layer, torch.kron(channels, space.T.contiguous()))
    layer = perturbed(Woodbury, (3, 2, 4), rank_channels=2, rank_space=3, memory_efficient=True)
    channels, width, height = matrices(layer)
    follows(layer, torch.kron(channels, torch.kron(height, width.T.contiguous())))


def test_memory_efficient_on_a_sequence_is_the_ordinary_layer():
    torch.manual_seed(0)
    ordinary = Woodbury((3, 8))
    torch.manual_seed(0)
    efficient = Woodbury((3, 8), memory_efficient=True)
    assert efficient.state_dict().keys() == ordinary.state_dict().keys()
    x = torch.randn(2, 3, 8)
    assert torch.equal(efficient(x)[0], ordinary(x)[0])
    layer = Woodbury((12, 16, 8), rank_channels=5, rank_space=3, memory_efficient=True)
    assert sum(p.numel() for p in layer.parameters()) == 2 * 12 * 5 + 2 * (16 + 8) * 3
    torch.manual_seed(0)
    layer = Woodbury((16, 256), rank_channels=16, rank_space=16)
    for parameter in layer.parameters():
        assert 0.008 < parameter.std() < 0.012
