import torch

from layers.woodbury import Woodbury


def test_definitions_of_both_variants(perturbed):
    """X <- (I + U_c V_c) X, then X <- X (I + U_s V_s)."""
    layer = perturbed(Woodbury, (3, 2, 4), rank_channels=2, rank_space=3)
    x = torch.randn(1, 3, 2, 4, dtype=torch.float64)
    matrix = x.reshape(3, 8)
    channels, space = layer
    matrix = matrix + channels.u @ (channels.v @ matrix)
    matrix = matrix + (matrix @ space.u) @ space.v
    torch.testing.assert_close(layer(x)[0], matrix.reshape(1, 3, 2, 4))
    # Channels, then width, then height, entry by entry; unequal sizes detect an exchange of axes.
    layer = perturbed(Woodbury, (3, 2, 4), rank_channels=2, rank_space=3, memory_efficient=True)
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
    layer = Woodbury((12, 16, 8), rank_channels=5, rank_space=3, memory_efficient=True)
    assert sum(p.numel() for p in layer.parameters()) == 2 * 12 * 5 + 2 * (16 + 8) * 3
    torch.manual_seed(0)
    layer = Woodbury((16, 256), rank_channels=16, rank_space=16)
    for parameter in layer.parameters():
        assert 0.008 < parameter.std() < 0.012
