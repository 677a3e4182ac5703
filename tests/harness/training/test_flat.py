"""Weights that share the memory of one tensor keep their values, take its updates and add their gradients to it.

Whatever a module does to its weights, training is that of an optimiser as everybody has it, `Adam(model.parameters())`.
"""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.optim import Adam

from harness.core.settings import TrainingSettings
from harness.training.updates import Updates, flattened


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype)


def test_one_tensor_for_each_dtype_of_weights_of_any_layout():
    model = net()
    model[2].double()
    before = deepcopy(model.state_dict())
    tensors = flattened(list(model.parameters()))
    assert [joined.tensor.dtype for joined in tensors] == [torch.float32, torch.float64]
    torch.testing.assert_close(model.state_dict(), before)
    assert flattened([]) == []
    # Transposed weights, and one that the loss does not depend on: its gradient is zero.
    weight, unused = nn.Parameter(torch.randn(3, 4).T), nn.Parameter(torch.randn(2))
    before = weight.detach().clone()
    joined = flattened([weight, unused])[0].tensor
    assert torch.equal(weight, before)
    (weight * before).sum().backward()
    assert torch.equal(joined.grad, torch.cat([before.flatten(), torch.zeros(2)]))
    model = net()
    (joined,) = flattened(list(model.parameters()))
    model[0].weight.data = torch.zeros(5, 3)
    with pytest.raises(ValueError, match=r"\(4, 3\)"):
        joined.collect()
    # Of the model, and of its saved weights, which are written into it again.
    model = net()
    joined = flattened(list(model.parameters()))[0].tensor
    other, saved = deepcopy(model), deepcopy(model.state_dict())
    with torch.no_grad():
        joined.zero_()
    assert not any(weight.any() for weight in model.parameters())
    torch.testing.assert_close(other.state_dict(), saved)
    assert all(weight.any() for weight in other.parameters())
    model.load_state_dict(saved)
    assert torch.equal(joined, torch.cat([weight.flatten() for weight in other.parameters()]))


class Idiom(nn.Module):
    """A linear map that limits or replaces its weights in one of the ways in use."""

    def __init__(self, idiom):
        super().__init__()
        self.idiom = idiom
        self.linear = nn.Linear(3, 3)
        match idiom:
            case "weight norm":
                parametrizations.weight_norm(self.linear)
            case "orthogonal":
                parametrizations.orthogonal(self.linear)
            case "hook of a gradient":
                self.linear.weight.register_hook(lambda gradient: 2 * gradient)

    def forward(self, x):
        weight = self.linear.weight
        match self.idiom:
            case "clamp":
                weight.data = weight.data.clamp(-0.3, 0.3)
            case "clamp in place":
                with torch.no_grad():
                    weight.clamp_(-0.3, 0.3)
            case "max-norm":
                weight.data = weight.data * (0.8 / weight.data.norm(dim=1, keepdim=True)).clamp(max=1)
            case "standardised":
                weight.data = weight.data - weight.data.mean()
            case "set_":
                with torch.no_grad():
                    weight.set_(weight.detach().clone())
            case "transposed memory":
                weight.data = weight.data.t().contiguous().t()
            case "no gradient kept" if self.training:
                weight.grad = None
            case "gradient replaced" if self.training:
                weight.grad = torch.zeros_like(weight)
            case "replaced parameter" if self.training:
                self.linear.weight = nn.Parameter(weight.detach().clone())
            case "replaced in _parameters" if self.training:
                self.linear._parameters["weight"] = nn.Parameter(weight.detach().clone())
        return self.linear(x)

    def train(self, mode=True):
        if not mode and self.idiom == "clone in eval":
            self.linear.weight.data = self.linear.weight.data.clone()
        if not mode and self.idiom == "replaced in eval":
            self.linear.weight = nn.Parameter(self.linear.weight.detach().clone())
        return super().train(mode)

    def linear_layers(self):
        return []


IDIOMS = [
    "none", "weight norm", "orthogonal", "hook of a gradient", "clamp", "clamp in place", "max-norm",
    "standardised", "set_", "transposed memory", "no gradient kept", "gradient replaced", "replaced parameter",
    "replaced in _parameters", "clone in eval", "replaced in eval",
]  # fmt: skip


@pytest.mark.parametrize("idiom", IDIOMS)
def test_training_is_that_of_a_plain_optimiser(idiom):
    torch.manual_seed(0)
    model = Idiom(idiom)
    other = deepcopy(model)
    settings = TrainingSettings(steps=20, batch_size=5, learning_rate=0.05, warmup=0, decay=1.0)
    updates = Updates(model, settings, 5)
    plain = Adam(other.parameters(), lr=0.05)
    start = deepcopy(model.state_dict())
    draws = torch.Generator().manual_seed(1)
    for step in range(1, 21):
        x, target = torch.randn(2, 5, 3, generator=draws)
        updates.step(lambda flow, x=x, target=target: {"nats_per_dim": (flow(x) - target).square()}, step)
        plain.zero_grad()
        (other(x) - target).square().mean().backward()
        plain.step()
        if step % 5 == 0:
            for each in (model, other):
                each.eval()
                each.train()
    torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=1e-5, atol=1e-6)
    assert any(not torch.equal(start[name], value) for name, value in model.state_dict().items())
    assert updates.replaced() == (["linear.weight"] if "replaced" in idiom and "gradient" not in idiom else [])
