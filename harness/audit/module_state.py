"""Find which tensors of a module a step has moved, by an optimiser or otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from itertools import chain

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from harness.evaluation.evaluation import changed_state, identical


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of every tensor that a module holds: parameters, buffers, and those in other attributes."""
    held = dict([*module.named_parameters(), *module.named_buffers()])
    registered = {id(value) for value in held.values()}
    registries = {"_parameters", "_buffers", "_modules"}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name in registries:
                continue
            for number, leaf in enumerate(tree_leaves(value)):
                if isinstance(leaf, Tensor) and id(leaf) not in registered:
                    held[f"{path}.{name}[{number}]".lstrip(".")] = leaf
    return {name: value.detach().clone() for name, value in held.items()}


def moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    """Return the names of the tensors that have other values, except counters: single whole numbers."""
    counters = {name for name, v in before.items() if v.numel() == 1 and not (v.is_floating_point() or v.is_complex())}
    names = (before.keys() & after.keys()) - counters
    return list(changed_state({name: before[name] for name in names}, {name: after[name] for name in names}))


@torch.no_grad()
def used(module: nn.Module, names: Iterable[str], x: Tensor) -> list[str]:
    """Return those of the named tensors on which forward, in train() or in eval(), or the inverse depends.

    A buffer may hold what only diagnoses: with other values in it, all results are the same. Tensors that are neither
    buffers nor floating-point count as used.

    Args:
        x: events, (N, *shape).
    """
    buffers = dict(module.named_buffers())
    asked = list(names)
    idle = {name: buffers[name] for name in asked if name in buffers and buffers[name].is_floating_point()}
    if not idle:
        return asked
    training, kept = module.training, {name: value.clone() for name, value in buffers.items()}

    def results(training: bool, grad: bool, shift: float) -> list[Tensor]:
        for name, value in buffers.items():
            value.copy_(kept[name])
        for value in idle.values():
            value.mul_(1 + shift).add_(shift)
        module.train(training)
        with torch.set_grad_enabled(grad):
            y, log_det = module(x)
            return [y.detach(), log_det.detach(), module.inverse(y).detach()]  # type: ignore[operator]

    try:
        with torch.random.fork_rng([]):
            modes = ((True, True), (True, False), (False, False))
            pairs = [zip(results(*mode, 0.0), results(*mode, 1.0), strict=True) for mode in modes]
    finally:
        module.train(training)
        for name, value in buffers.items():
            value.copy_(kept[name])
    if not all(identical(first, second) for first, second in chain(*pairs)):
        return asked
    return [name for name in asked if name not in idle]


class OptimiserTwin:
    """A copy of an optimiser and its weights, which takes the same steps from the same gradients."""

    def __init__(self, optimiser: Optimizer) -> None:
        self._optimiser, self._copy = optimiser, deepcopy(optimiser)

    def agrees(self) -> bool:
        """Take the last step of the optimiser too; return whether the weights are equal afterwards."""
        pairs: list[tuple[Tensor, Tensor]] = []
        for group, other in zip(self._optimiser.param_groups, self._copy.param_groups, strict=True):
            other["lr"] = group["lr"]
            pairs += zip(group["params"], other["params"], strict=True)
        for weight, copied in pairs:
            copied.grad = None if weight.grad is None else weight.grad.clone()
        self._copy.step()
        return all(torch.equal(weight, copied) for weight, copied in pairs)
