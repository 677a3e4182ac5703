"""Every layer traces as one graph with torch.compile, and agrees with its eager execution."""

import copy
from functools import partial

import pytest
import torch
from compared import both_directions

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
    x, compiled = torch.randn(3, *shape), partial(torch.compile, fullgraph=True, backend=backend)
    values = both_directions(copy.deepcopy(eager), x, compiled), both_directions(eager, x)
    torch.testing.assert_close(*values, rtol=1e-4, atol=1e-5)


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
