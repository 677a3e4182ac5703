"""Weights that share the memory of one tensor keep their values, take its updates and add their gradients to it."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.optim import Adam

from harness.training.updates import flattened


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype)


def loss(model, x):
    return model(x).square().mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_training_equals_that_of_separate_weights(dtype):
    flat, separate = net(dtype), net(dtype)
    (joined,) = flattened(list(flat.parameters()))
    assert joined.shape == (sum(weight.numel() for weight in separate.parameters()),)
    optimisers = Adam([joined], lr=0.1, fused=True), Adam(separate.parameters(), lr=0.1, fused=True)
    for _ in range(5):
        x = torch.randn(7, 3, dtype=dtype)
        joined.grad.zero_()
        optimisers[1].zero_grad()
        for model, optimiser in zip((flat, separate), optimisers, strict=True):
            loss(model, x).backward()
            optimiser.step()
    torch.testing.assert_close(flat.state_dict(), separate.state_dict())
    assert torch.equal(joined, torch.cat([weight.flatten() for weight in flat.parameters()]))


def test_one_tensor_for_each_dtype():
    model = net()
    model[2].double()
    before = deepcopy(model.state_dict())
    tensors = flattened(list(model.parameters()))
    assert [tensor.dtype for tensor in tensors] == [torch.float32, torch.float64]
    torch.testing.assert_close(model.state_dict(), before)
    assert flattened([]) == []


def test_weights_of_any_layout():
    """Transposed weights, and one that the loss does not depend on: its gradient is zero."""
    weight, unused = nn.Parameter(torch.randn(3, 4).T), nn.Parameter(torch.randn(2))
    before = weight.detach().clone()
    (joined,) = flattened([weight, unused])
    assert torch.equal(weight, before)
    (weight * before).sum().backward()
    assert torch.equal(joined.grad, torch.cat([before.flatten(), torch.zeros(2)]))


def test_copies_are_apart():
    """Of the model, and of its saved weights, which are written into it again."""
    model = net()
    (joined,) = flattened(list(model.parameters()))
    other, saved = deepcopy(model), deepcopy(model.state_dict())
    with torch.no_grad():
        joined.zero_()
    assert not any(weight.any() for weight in model.parameters())
    torch.testing.assert_close(other.state_dict(), saved)
    assert all(weight.any() for weight in other.parameters())
    model.load_state_dict(saved)
    assert torch.equal(joined, torch.cat([weight.flatten() for weight in other.parameters()]))
