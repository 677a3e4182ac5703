"""Adam, without the compiler that torch's optimiser classes import."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam

EPS = 1e-8


class Adam:
    """Adam (Kingma and Ba, 2015) for a list of weights, by torch's fused kernel.

    The result equals that of `torch.optim.Adam(weights, betas=betas, fused=True)` to the last bit; that class cannot be
    constructed without importing torch._dynamo: 1.5 to 2 seconds, half of a trial's time to its first step. A weight
    without a gradient is unchanged, and so are its moments.

    Args:
        weights: changed in place by every step.
        betas: the decay of the two moments per step.
    """

    def __init__(self, weights: Sequence[Tensor], betas: tuple[float, float]) -> None:
        self.weights = list(weights)
        self._betas = betas
        self._means = [torch.zeros_like(weight, memory_format=torch.preserve_format) for weight in self.weights]
        self._squares = [torch.zeros_like(weight, memory_format=torch.preserve_format) for weight in self.weights]
        self._steps = [torch.zeros((), dtype=torch.float32, device=weight.device) for weight in self.weights]

    @torch.no_grad()
    def step(self, rate: float | Tensor) -> None:
        """Take one step along the gradients at this learning rate; a tensor on the device is read there (float32)."""
        state = zip(self.weights, self._means, self._squares, self._steps, strict=True)
        moving = [(weight, weight.grad, *moments) for weight, *moments in state if weight.grad is not None]
        if not moving:
            return
        weights, gradients, means, squares, steps = map(list, zip(*moving, strict=True))
        adam(
            *(weights, gradients, means, squares, [], steps),
            fused=True,
            amsgrad=False,
            beta1=self._betas[0],
            beta2=self._betas[1],
            lr=rate,
            weight_decay=0.0,
            eps=EPS,
            maximize=False,
        )

    def state_dict(self) -> dict[str, list[Tensor]]:
        """Return both moments of every weight, and the number of its steps."""
        return {"means": self._means, "squares": self._squares, "steps": self._steps}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, list[Tensor]]) -> None:
        """Restore the moments and the numbers of steps."""
        for name, tensors in self.state_dict().items():
            for tensor, value in zip(tensors, state[name], strict=True):
                tensor.copy_(value)
