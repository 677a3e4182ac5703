"""Couplings that compiled operators compute, of images and of sequences, under torch.compile."""

import pytest
import torch

from flows.couplings import make_coupling


@pytest.mark.parametrize("shape", [(4, 3, 2), (3, 5)])
def test_a_coupling_traces_as_one_graph(shape, perturb):
    """As plain PyTorch, which agrees with the compiled operators."""
    coupling, x = perturb(make_coupling("auto", shape, 4)), torch.randn(2, *shape, dtype=torch.float64)
    torch.compiler.reset()
    traced = torch.compile(coupling, fullgraph=True, backend="aot_eager")
    both = traced(x), coupling(x)
    torch.testing.assert_close(*both)
    leaves = list(coupling.parameters())
    gradients = (torch.autograd.grad(sum(y.square().sum() for y in outputs), leaves) for outputs in both)
    torch.testing.assert_close(*gradients)
