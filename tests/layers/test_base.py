"""The base class checks the inputs of every layer, and derives `inverse` or `inverter` from the other one."""

import pytest
import torch
from torch import nn

from layers import LAYERS, InvertibleLinear


class GainByInverter(InvertibleLinear):
    """y = s x with `inverter`; counts its calls."""

    prepared = 0

    def __init__(self, shape):
        super().__init__(shape)
        self.gain = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

    def forward(self, x):
        return self.gain * x, self.dim * self.gain.log()

    def inverter(self):
        self.prepared += 1
        reciprocal = 1 / self.gain
        return lambda y: reciprocal * y


class GainByInverse(GainByInverter):
    """Define `inverse` alone, which replaces both methods of the parent."""

    def inverse(self, y):
        return y / self.gain


class GainTwice(GainByInverse):
    """Call the parent's `inverse` by super(): the derived methods do not call each other."""

    def inverse(self, y):
        return super().inverse(super().inverse(y))


@pytest.mark.parametrize(("cls", "power"), [(GainByInverter, 1), (GainByInverse, 1), (GainTwice, 2)])
def test_inverse_and_inverter_are_derived_from_each_other(cls, power):
    layer, y = cls((2, 3)), torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    for inverse in (layer.inverse, layer.inverter()):
        torch.testing.assert_close(inverse(y), y / 2**power)
        assert torch.autograd.gradcheck(inverse, (y,))
        gradient = torch.autograd.grad(layer.inverse(y).sum(), layer.gain)[0]
        torch.testing.assert_close(gradient, -power * y.sum().detach() / 2 ** (power + 1))


def test_an_inverter_is_prepared_once():
    layer, y = GainByInverter((2, 3)), torch.randn(4, 2, 3, dtype=torch.float64)
    invert = layer.inverter()
    invert(y), invert(y)
    assert layer.prepared == 1
    with torch.no_grad():
        assert not layer.inverter()(y).requires_grad


@pytest.mark.parametrize("cls", [GainByInverter, GainByInverse, GainTwice])
def test_every_method_refuses_inputs_of_another_shape(cls):
    layer = cls((2, 3, 4))
    calls = {"layer()": layer, "forward": layer.forward, "inverse": layer.inverse, "inverter": layer.inverter()}
    for name, call in calls.items():
        for shape in [(2, 3, 4), (5, 2, 4, 3), (5, 3, 3, 4), (5, 24), (5, 2, 3, 4, 1), (5, 1, 3, 4)]:
            with pytest.raises(ValueError, match=r"is not a batch of events \(2, 3, 4\)"):
                call(torch.zeros(shape))
                pytest.fail(f"{name} takes {shape}")


def test_a_wrapped_method_keeps_its_name_and_docstring():
    assert GainTwice.inverse.__qualname__ == "GainTwice.inverse"
    assert "Apply every layer" not in (InvertibleLinear.forward.__doc__ or "")
    assert LAYERS["conv1x1"].forward.__doc__ == "Apply W at every position; see the class for the log-det."
