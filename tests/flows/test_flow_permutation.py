"""The fixed permutation before the first level of a flow."""

import pytest
import torch

from flows import Glow, Permutation

SMALL = {"levels": 2, "steps": 1, "width": 4}


def shuffled(dim, seed=0):
    return torch.randperm(dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(3, 2, 4), (2, 8), (1, 1)])
def test_entries_are_permuted_and_restored(shape):
    dim = torch.Size(shape).numel()
    order = shuffled(dim)
    module = Permutation(shape, order.tolist())
    x = torch.randn(5, *shape)
    y, log_det = module(x)
    assert y.shape == x.shape and log_det.shape == () and log_det == 0
    for event, moved in zip(x.flatten(1), y.flatten(1), strict=True):
        assert moved.tolist() == [event[place].item() for place in order]
    assert torch.equal(module.inverse(y), x)
    assert torch.equal(module(module.inverse(x))[0], x)
    assert not list(module.parameters()) and list(module.state_dict()) == ["order"]
    assert module.double().order.dtype == torch.long


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 1, 2, 2], [1, 2, 3, 4], [[0, 1], [2, 3]], [0, 1, 2, 3, 4]])
def test_invalid_permutations_are_refused(order):
    with pytest.raises(ValueError, match=r"not a permutation of the 4 entries of events \(1, 4\).*each of 0..3 once"):
        Permutation((1, 4), order)


@pytest.mark.parametrize("shape", [(2, 4, 4), (2, 8)])
def test_the_following_flow_receives_permuted_examples(shape, everywhere, channelwise, perturb, check_bijection):
    order = shuffled(torch.Size(shape).numel())
    plain = perturb(Glow(shape, everywhere, channelwise, prior="learned", **SMALL))
    behind = Glow(shape, everywhere, channelwise, prior="learned", order=order, **SMALL).double()
    behind.load_state_dict(plain.state_dict() | {"permutation.order": order})
    x = torch.randn(3, *shape).double()
    moved = Permutation(shape, order)(x)[0]
    assert all(torch.equal(a, b) for a, b in zip(behind(x), plain(moved), strict=True))
    check_bijection(behind, x)
    draws = [flow.sample(4, generator=torch.Generator().manual_seed(1)) for flow in (plain, behind)]
    assert torch.equal(draws[0], Permutation(shape, order)(draws[1])[0])
    path, module, value = next(behind.trace(x))
    assert path == "permutation" and isinstance(module, Permutation) and torch.equal(value, x)
    assert [part[0] for part in behind.trace(x)][1:] == [part[0] for part in plain.trace(x)]
