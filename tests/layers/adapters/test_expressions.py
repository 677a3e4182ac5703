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


UNKNOWN = ["2 * E", "full(D)", "D / 2", "D ** 2", "eye(D, dtype=3)", "__import__('os')", "D + 'x'"]
RULE = r"^M: .* is unknown; use numbers, the event's sizes D, C, H, W, L"


@pytest.mark.parametrize(
    ("text", "shape", "error", "message"),
    [
        *((text, (2, 3, 4), ValueError, RULE) for text in UNKNOWN),
        ("eye(D", (2, 3), ValueError, r"M: 'eye\(D' is not an expression; use numbers"),
        ("eye(D) + eye(C)", (2, 3), ValueError, r"M = 'eye\(D\) \+ eye\(C\)' cannot be evaluated for events \(2, 3\)"),
        ("H", (2, 3), UnsupportedShape, r"events .* have no"),
        ("C * L", (2, 3, 4), UnsupportedShape, r"events .* have no"),
    ],
)
def test_what_cannot_be_evaluated_is_named_with_the_rule(text, shape, error, message):
    with pytest.raises(error, match=message):
        evaluate("M", text, shape)
