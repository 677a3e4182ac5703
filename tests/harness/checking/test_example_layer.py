"""The example layer of the README."""

from pathlib import Path

import torch

from harness.checking.check_layer import check_layer
from harness.core.layer_classes import resolve_layer
from layers import LAYERS

ROOT = Path(__file__).parents[3]
SPEC = "./examples/householder.py:Householder"


def test_the_example_passes_every_check():
    """On a shape by each number of reflections, one of a channel, whose direction has no gradient but rounding."""
    for options, shape in (({}, (3, 5, 4)), ({"reflections": 5}, (3, 7)), ({"reflections": 3}, (1, 8))):
        report = check_layer(SPEC, options, ROOT, shapes=[shape], large=False)
        assert report.ok and not report.refused, "\n".join(report.lines())


def test_without_its_scale_the_example_is_orthogonal():
    layer = resolve_layer(SPEC, ROOT)((3, 2, 2), reflections=2).double()
    w = layer.dense()
    torch.testing.assert_close(w @ w.T, torch.eye(12, dtype=torch.float64))


def test_the_plain_module_passes_every_check():
    report = check_layer("examples/reflection.py:Reflection", {"features": "D"}, ROOT, shapes=[(2, 3, 2)], large=False)
    assert report.ok and not report.refused and not report.remarks, "\n".join(report.lines())


def test_the_example_registers_nothing():
    resolve_layer(SPEC, ROOT)
    assert "householder" not in LAYERS
