"""Every layer traces as one graph with torch.compile, and agrees with its eager execution."""

import copy

import pytest
import torch

from harness.checking.check_layer import SHAPES, construct
from layers import LAYERS

BY_DEFAULT = ["butterfly", "conv1x1"]
PAPER = [*BY_DEFAULT, "emerging", "periodic", "woodbury"]
SYSTEM = pytest.mark.system  # tracing takes about a second


def check(name: str, backend: str) -> None:
    """Compare both directions and all gradients, on the first shape that the layer serves."""
    torch.compiler.reset()
    shape = next(shape for shape in SHAPES if construct(LAYERS[name], shape, {}) == (None, []))
    torch.manual_seed(0)
    eager = LAYERS[name](shape)
    with torch.no_grad():
        for parameter in eager.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    other = copy.deepcopy(eager)
    forward, inverse = (
        torch.compile(function, fullgraph=True, backend=backend) for function in (other.forward, other.inverse)
    )
    x = torch.randn(3, *shape)
    expected = results(eager, eager.forward, eager.inverse, x)
    for result, reference in zip(results(other, forward, inverse, x), expected, strict=True):
        torch.testing.assert_close(result, reference, rtol=1e-4, atol=1e-5)


def results(layer, forward, inverse, x):
    """Return y, the log-det, the inverse of x, and the gradients of both directions."""
    tensors = []
    for function in (forward, inverse):
        events = x.clone().requires_grad_()
        outputs = function(events)
        outputs = [*outputs] if isinstance(outputs, tuple) else [outputs]
        weighted = sum((torch.linspace(1, 2, y.numel()).view(y.shape) * y).sum() for y in outputs)
        leaves = [events, *layer.parameters()]
        tensors += outputs + list(torch.autograd.grad(weighted, leaves, allow_unused=True, materialize_grads=True))
    return tensors


@pytest.mark.parametrize("name", [name if name in BY_DEFAULT else pytest.param(name, marks=SYSTEM) for name in LAYERS])
def test_one_graph(name: str):
    check(name, "aot_eager")


@pytest.mark.system
def test_one_graph_under_autocast():
    torch.compiler.reset()
    layer, x = LAYERS["woodbury"]((4, 4, 4)), torch.randn(3, 4, 4, 4)
    expected = layer(x)
    compiled = torch.compile(layer.forward, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x), expected)


@pytest.mark.system
@pytest.mark.parametrize("name", PAPER)
def test_compiled_code(name: str):
    check(name, "inductor")
