"""Operators and layers compared with their formulas: outputs, all gradients, and errors in single precision."""

import torch
from torch.testing import assert_close


def with_gradients(outputs, leaves, seeds=None):
    """Return outputs and their gradients by leaves, for gradients of the outputs that depend on their shapes alone."""
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    if seeds is None:
        generator = torch.Generator().manual_seed(1)
        seeds = [torch.randn(output.shape, generator=generator).to(output) for output in outputs]
    pairs = [pair for pair in zip(outputs, seeds, strict=True) if pair[0].requires_grad]
    gradients = torch.autograd.grad(
        [output for output, _ in pairs], leaves, [seed for _, seed in pairs], materialize_grads=True
    )
    return [*(output.detach() for output in outputs), *gradients]


def results(function, operands, others=(), seeds=None):
    """Return the outputs of a function, and the gradients of all operands but the others."""
    leaves = [operand.detach().requires_grad_() for operand in operands]
    return with_gradients(function(*leaves, *others), leaves, seeds)


def both_directions(layer, x, compiled=lambda method: method):
    """Return y, the log-det, the inverse of x, and the gradients of both directions by x and the parameters."""
    x = x.detach().requires_grad_()
    leaves = [x, *layer.parameters()]
    return with_gradients(compiled(layer.forward)(x), leaves) + with_gradients(compiled(layer.inverse)(x), leaves)


def agree(function, formula, operands, others=(), seeds=None, **tolerance):
    """Compare the results of a function with those of its formula."""
    assert_close(*(results(each, operands, others, seeds) for each in (function, formula)), **tolerance)


def at_most_twice(ours, plain, truth, slack=0.0):
    """Check that each error, compared with a result in double precision, is at most twice that of another way."""
    for number, (a, b, true) in enumerate(zip(ours, plain, truth, strict=True)):
        assert (a - true).norm() <= 2 * (b - true).norm() + slack * true.norm(), number


def check_errors(function, formula, operands, others=(), slack=0.0):
    """Check that the errors of outputs and gradients in single precision are at most twice those of a formula."""

    def wide(values):
        return [one.double() if torch.is_tensor(one) and one.is_floating_point() else one for one in values]

    truth = results(formula, wide(operands), wide(others))
    at_most_twice(*(results(each, operands, others) for each in (function, formula)), truth, slack)


def follows(layer, matrix, tolerance=1e-9):
    """Check y, the log-det, both inverses and `dense` of a layer without an offset against its matrix."""
    x, close = torch.randn(3, *layer.shape, dtype=matrix.dtype), {"rtol": tolerance, "atol": tolerance}
    y, log_det = layer(x)
    assert_close(y.flatten(1), x.flatten(1) @ matrix.T, **close)
    assert_close(log_det, torch.linalg.slogdet(matrix).logabsdet, **close)
    assert_close(layer.dense(), matrix, **close)
    for inverse in (layer.inverse, layer.inverter()):
        assert_close(inverse(y), x, **close)
