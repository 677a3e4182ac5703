import pytest
import torch

from layers import UnsupportedShape
from layers.adapters.expressions import evaluate, expression_fault


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("D", 24),
        ("2 * (C + H) - W // 2", 8),
        ("-C", -2),
        ("(C, H, W)", (2, 3, 4)),
        (["C", 1, "H * W"], (2, 1, 12)),
        ("shuffle", "shuffle"),
        ("random-order", "random-order"),
        ("not an expression", "not an expression"),
        ("torch.nn.ReLU", "torch.nn.ReLU"),
        (3, 3),
        (None, None),
    ],
)
def test_values(text, value):
    assert expression_fault(text) is None
    assert evaluate("option", text, (2, 3, 4)) == value


def test_tensors():
    assert torch.equal(evaluate("M", "eye(C) + 2 * ones(C, C)", (3, 4)), torch.eye(3) + 2)
    assert evaluate("order", "randperm(L)", (3, 4)).sort().values.tolist() == [0, 1, 2, 3]
    assert evaluate("M", "randn(C, D)", (3, 4)).shape == (3, 12)


@pytest.mark.parametrize(
    "text", ["2 * E", "full(D)", "D / 2", "D ** 2", "eye(D, dtype=3)", "__import__('os')", "D + 'x'"]
)
def test_unknown_parts_are_named_with_the_rule(text):
    with pytest.raises(ValueError, match=r"^option: .* is unknown; use numbers, the event's sizes D, C, H, W, L"):
        evaluate("option", text, (2, 3, 4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eye(D", r"M: 'eye\(D' is not an expression; use numbers"),
        ("eye(D) + eye(C)", r"M = 'eye\(D\) \+ eye\(C\)' cannot be evaluated for events \(2, 3\)"),
    ],
)
def test_garbled_tensors_and_wrong_sizes_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        evaluate("M", text, (2, 3))


@pytest.mark.parametrize(("text", "shape"), [("H", (2, 3)), ("C * L", (2, 3, 4))])
def test_an_axis_that_the_event_lacks(text, shape):
    with pytest.raises(UnsupportedShape, match=r"events .* have no"):
        evaluate("option", text, shape)
