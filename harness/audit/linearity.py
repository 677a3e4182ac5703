"""Check that a backward pass is linear in the gradient that reaches it.

The loss of a flow is a mean over events and entries, so the gradients that reach a layer are far smaller than those of
a test, and differ from entry to entry. A backward pass that clips, rounds or drops small ones trains another model, or
none. So a step (`harness.audit.training_step`) is compared with

- steps of multiples of the loss: the gradients are these multiples;
- a step in which a single entry of y has a large gradient in addition: the gradients are the sums.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from harness.audit.findings import largest
from harness.audit.training_step import TrainingStep, take_step
from layers import InvertibleLinear

SCALES = tuple(2.0**power for power in (-20, -13, -7, 7, 13))  # powers of two leave all rounding as it is
UNEVEN = 1.001  # a multiple that does not, and so shows how much rounding changes
NOISE = 8.0  # multiples of that
TOLERANCE = 1e-2  # relative
VANISHED = 100.0  # gradients that are rounding alone, in multiples of eps and of the sum of the parts of the loss
LARGE = 3e3  # size of the gradient of a single entry of y, in multiples of the others
CHANGES = (1.0, 0.9, 1.1)  # of that size: what rounding loses by chance, it does not lose with each of them


def linearity_faults(layer: InvertibleLinear, x: Tensor, weights: Tensor, rounding: float) -> Iterator[str]:
    """Yield the first gradient that is not linear in those of the results, of either kind.

    Args:
        layer: in train().
        x, weights: events, and the weights of y in the loss, (N, *shape).
        rounding: relative error of a gradient that the condition number of the layer explains.
    """
    n = f"in a training step of {len(x)} events"
    step = take_step(layer, x, weights)
    expected = _gradients(step)
    for scale in SCALES:
        multiple = _gradients(take_step(layer, x, weights, scale))
        for what in expected.keys() & multiple.keys():
            error = largest(multiple[what] / scale - expected[what])
            if error > TOLERANCE * largest(expected[what]):
                yield (
                    f"the gradient by {what} {n} of {scale:.3g} times the loss is not {scale:.3g} times the gradient: "
                    f"the backward pass is not linear, and losses of flows are small"
                )
                return
    single = x.new_zeros(x.shape)
    single.flatten(1)[:, 0] = 1.0
    alone = _gradients(take_step(layer, x, single, log_det=False))
    for what in expected.keys() & alone.keys():
        size, other = largest(expected[what]), largest(alone[what])
        if not other or size <= VANISHED * torch.finfo(x.dtype).eps * float((step.y * weights).abs().sum()):
            continue  # of one channel a reflection has no gradient but rounding
        factors = (LARGE * size / other * change for change in CHANGES)
        if all(_loses(what, layer, x, weights, factor * single, expected[what], rounding) for factor in factors):
            yield (
                f"the gradient by {what} {n} loses what is small beside that of the first entry of y: the backward "
                "pass is not linear, and Adam scales small gradients up"
            )
            return


def _loses(
    what: str, layer: InvertibleLinear, x: Tensor, weights: Tensor, added: Tensor, expected: Tensor, rounding: float
) -> bool:
    """Return whether a step with a large gradient in addition loses more of the expected one than rounding explains."""
    large, uneven, both = (
        _gradients(take_step(layer, x, cotangent, log_det=log_det))[what]
        for cotangent, log_det in ((added, False), (UNEVEN * added, False), (weights + added, True))
    )
    size = largest(expected)
    hidden = LARGE * rounding * size + NOISE * largest(uneven / UNEVEN - large)
    return hidden < size / 4 and largest(both - large - expected) > TOLERANCE * size + hidden


def _gradients(step: TrainingStep) -> dict[str, Tensor]:
    return {what: value.double() for what, value in step.gradients.items()}
