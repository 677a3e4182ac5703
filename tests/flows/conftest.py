"""Small layers for the tests of flows, which compare log-dets with the Jacobian from autograd."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from layers.conv1x1 import Conv1x1


class Everywhere(nn.Module):
    """A full D x D matrix, which detects a wrong order of entries; its log-det has shape (N,)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        dim = torch.Size(shape).numel()
        self.weight = nn.Parameter(torch.eye(dim) + 0.3 / dim**0.5 * torch.randn(dim, dim))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x.flatten(1) @ self.weight.T).view_as(x)
        return y, torch.linalg.slogdet(self.weight).logabsdet.expand(len(x))

    def inverse(self, y: Tensor) -> Tensor:
        return torch.linalg.solve(self.weight, y.flatten(1).T).T.view_as(y)


@pytest.fixture
def channelwise() -> type[Conv1x1]:
    return Conv1x1


@pytest.fixture
def everywhere() -> type[Everywhere]:
    return Everywhere


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def perturb() -> Callable[[nn.Module], nn.Module]:
    """Return a function that adds noise to all parameters, in float64: at initialisation many faults have no effect.

    The noise of a weight falls with the square root of its inputs, so that maps stay well-conditioned.
    """

    def move(module: nn.Module, size: float = 0.3) -> nn.Module:
        module.double()
        with torch.no_grad():
            for parameter in module.parameters():
                inputs = parameter[0].numel() if parameter.ndim > 1 else 1
                parameter.add_(size / inputs**0.5 * torch.randn_like(parameter))
        return module

    return move


@pytest.fixture
def check_bijection() -> Callable[[nn.Module, Tensor], None]:
    """Return a function that compares the log-det with autograd and checks both round trips, in float64."""

    def check(module: nn.Module, x: Tensor) -> None:
        y, log_det = module(x)
        total = log_det.expand(len(x))
        for event, claimed in zip(x, total, strict=True):
            jacobian = torch.func.jacrev(lambda v: module(v[None])[0][0].flatten())(event)
            true = torch.linalg.slogdet(jacobian.reshape(event.numel(), event.numel())).logabsdet
            torch.testing.assert_close(claimed, true, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(module.inverse(y), x, rtol=1e-8, atol=1e-8)
        z = y + 0.1 * torch.randn_like(y)
        torch.testing.assert_close(module(module.inverse(z))[0], z, rtol=1e-8, atol=1e-8)

    return check


@pytest.fixture
def encoder_layer() -> Callable[[nn.Module, int, int], nn.Module]:
    """Return a function that makes torch's encoder layer of a width and heads, with the weights of our block."""

    def make(block: nn.Module, width: int, heads: int) -> nn.Module:
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64
        )
        norm, into, _, out = block.perceptron
        pairs = {
            "self_attn.in_proj_": block.queries_keys_values,
            "self_attn.out_proj.": block.mixed,
            "norm1.": block.attention_norm,
            "norm2.": norm,
            "linear1.": into,
            "linear2.": out,
        }
        layer.load_state_dict(
            {f"{name}{key}": module.get_parameter(key) for name, module in pairs.items() for key in ("weight", "bias")}
        )
        return layer

    return make
