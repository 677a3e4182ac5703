"""One training step: which weights follow which optimiser, at which rate, and which averages are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam
from torch.optim.swa_utils import get_ema_multi_avg_fn

from harness.core.settings import TrainingSettings
from layers import count_entries

if TYPE_CHECKING:
    from flows import Flow
    from harness.core.settings import Unit
    from layers import InvertibleLinear

Measures = dict["Unit", Tensor]
Measure = Callable[["Flow"], Measures]
"""Function from a flow to the measures of the current batch (see `Pipeline.measures`)."""


def learning_rate(settings: TrainingSettings, step: int) -> float:
    """Return the rate of step 1, 2, ...: linear up to the full rate at step `warmup`, then times `decay` per step."""
    if step < settings.warmup:
        return settings.learning_rate * step / settings.warmup
    return settings.learning_rate * settings.decay ** (step - settings.warmup)


def layer_learning_rate(settings: TrainingSettings, step: int, points: int) -> float:
    """Return the rate of the layers under test: with `layer_decay`, times that per epoch in place of `decay`.

    An epoch ends with the step that uses the last of `points` training examples.
    """
    if settings.layer_decay is None:
        return learning_rate(settings, step)
    epoch = (step - 1) * min(settings.batch_size, points) // points
    return learning_rate(settings.model_copy(update={"decay": 1.0}), step) * settings.layer_decay**epoch


def layers_under_test(flow: Flow) -> list[tuple[str, InvertibleLinear]]:
    """Return (path, layer) of every layer under test; a mixer in the same step belongs to the backbone."""
    layers = [(path, module) for path, module in flow.linear_layers() if path.endswith("/layer")]
    return cast("list[tuple[str, InvertibleLinear]]", layers)


@torch.no_grad()
def smallest_log_det(flow: Flow) -> tuple[str, float] | None:
    """Return path and log|det W| / D of the layer under test nearest to singular, or not finite; None: no layer."""
    values = {}
    for path, layer in layers_under_test(flow):
        zeros = next(flow.parameters()).new_zeros(1, *layer.shape)
        values[path] = float(layer(zeros)[1]) / layer.dim
    if not values:
        return None
    path = min(values, key=lambda path: values[path] if math.isfinite(values[path]) else -math.inf)
    return path, values[path]


class Updates:
    """The steps of training one flow by Adam, which leave in `flow` the weights to validate and keep.

    With averages, `flow` holds them and the live weights are in a copy made at construction, so after the
    data-dependent initialisation; after every step average <- ema_decay * average + (1 - ema_decay) * live.

    - "none": one pass; every weight follows its gradient.
    - "all": the same, and `flow` is the average of all weights.
    - "separate": `flow` is the live backbone around averages of the layers under test. Per batch, a pass of
      `flow` and a step of the backbone, with the averaged layers; a second pass, of the live layers in the
      current backbone, and a step of the layers, by a separate Adam; then the average. (ButterflyFlow, Meng et
      al., ICML 2022.)

    Args:
        flow: initialised on data; changed in place by every step.
        settings: those of the training.
        points: number of training examples, for the length of an epoch.
    """

    def __init__(self, flow: Flow, settings: TrainingSettings, points: int) -> None:
        self._flow = flow
        self._settings = settings
        self._points = points
        separate = settings.ema == "separate"
        # A tensor in the memo is not copied: a separate live flow shares the backbone.
        shared = {id(weight): weight for weight in _split(flow)[0]} if separate else {}
        live = flow if settings.ema == "none" else deepcopy(flow, shared)
        pairs = zip(flow.parameters(), live.parameters(), strict=True)
        # Frozen parameters stay equal; those of other libraries may be whole numbers, which have no average.
        self._averaged = [(mean, weight) for mean, weight in pairs if mean is not weight and weight.requires_grad]
        self._average = get_ema_multi_avg_fn(settings.ema_decay)
        backbone, layers = _split(live)
        groups = [(backbone, False), (layers, True)]
        plan = [(flow, groups[:1]), (live, groups[1:])] if separate else [(live, groups)]
        self._passes = [
            _Pass(model, [(weights, of_layers) for weights, of_layers in groups if weights])
            for model, groups in plan
            if any(weights for weights, _ in groups)
        ]
        self._received = [(model, _trained(model)) for model in dict.fromkeys((flow, live))]

    @property
    def passes(self) -> int:
        """Forward and backward passes per step."""
        return len(self._passes)

    @property
    def optimisers(self) -> list[Adam]:
        """The optimiser of each pass."""
        return [each.optimiser for each in self._passes]

    @property
    def parameters(self) -> int:
        """Return the number of real numbers that the optimisers received."""
        return count_entries(weight for each in self._passes for weight in each.weights)

    def replaced(self) -> list[str]:
        """Return the names of parameters that were replaced, frozen or thawed since: Adam does not train these."""
        names: set[str] = set()
        for model, received in self._received:
            now = _trained(model)
            pairs = [(now, received), (received, now)]
            names |= {weights[weight] for weights, others in pairs for weight in weights.keys() - others.keys()}
        return sorted(names)

    def state_dict(self) -> dict[str, Any]:
        """Return the state besides `flow`: the optimisers, and the live weights if `flow` holds averages."""
        return {
            "models": [model.state_dict() for model in self._apart()],
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore that state; `flow` is restored separately."""
        for model, weights in zip(self._apart(), state["models"], strict=True):
            model.load_state_dict(weights)
        for optimiser, moments in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(moments)

    def _apart(self) -> list[Flow]:
        return [each.model for each in self._passes if each.model is not self._flow]

    def step(self, measure: Measure, number: int) -> Measures:
        """Take step `number` (1, 2, ...) on one batch without waiting for the device; return its first measures."""
        rates = learning_rate(self._settings, number), layer_learning_rate(self._settings, number, self._points)
        first: Measures = {}
        for each in self._passes:
            measures = measure(each.model)
            first = first or measures
            for joined in each.joined:
                joined.zero_grad()
            # Of two passes, each needs the gradient of its weights alone.
            measures["nats_per_dim"].mean().backward(inputs=each.weights if self.passes > 1 else None)
            for joined in each.joined:
                joined.collect()
            if self._settings.clip_norm is not None:
                nn.utils.clip_grad_norm_(each.tensors, self._settings.clip_norm)
            for group in each.optimiser.param_groups:
                group["lr"] = rates[group["of_layers"]]
            each.optimiser.step()
        if self._averaged:
            averages, live = map(list, zip(*self._averaged, strict=True))
            self._average(averages, live, 0)
        return first


class _Pass:
    """A flow, and the optimiser of some of its weights, in groups (weights, whether of the layers under test)."""

    def __init__(self, model: Flow, groups: list[tuple[list[nn.Parameter], bool]]) -> None:
        self.model = model
        self.weights = [weight for weights, _ in groups for weight in weights]
        groups_of_joined = [(flattened(weights), of_layers) for weights, of_layers in groups]
        self.joined = [joined for group, _ in groups_of_joined for joined in group]
        self.tensors = [joined.tensor for joined in self.joined]
        self.optimiser = Adam(
            [
                {"params": [joined.tensor for joined in group], "of_layers": of_layers}
                for group, of_layers in groups_of_joined
            ],
            betas=(0.9, 0.999),
            fused=True,
        )


def _split(flow: Flow) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the trained weights of the backbone, and those of the layers under test."""
    layers = {id(weight): weight for _, layer in layers_under_test(flow) for weight in layer.parameters()}
    trained = [weight for weight in flow.parameters() if weight.requires_grad]
    return [w for w in trained if id(w) not in layers], [w for w in trained if id(w) in layers]


def _trained(flow: nn.Module) -> dict[nn.Parameter, str]:
    """Return every parameter that requires a gradient, with its name."""
    return {weight: name for name, weight in flow.named_parameters() if weight.requires_grad}


class Joined:
    """Weights of one device and dtype whose values and gradients are consecutive parts of one tensor.

    Every weight remains a parameter of its module. An optimiser of the tensor does the same arithmetic in fewer calls:
    for the 168 weights of a Glow on a CPU, Adam takes 0.6 instead of 1.8 ms (docs/performance/throughput.md).

    Common idioms, such as ``weight.data = weight.data.clamp(-3, 3)`` or ``weight.grad = None``, give a weight or its
    gradient other memory. An optimiser of the weights themselves would follow them, and so does `collect`.

    Attributes:
        tensor: for the optimiser.
    """

    @torch.no_grad()
    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        self.tensor = nn.Parameter(torch.cat([weight.flatten() for weight in weights]))
        self.tensor.grad = torch.zeros_like(self.tensor)
        sizes = [weight.numel() for weight in weights]
        values, gradients = self.tensor.detach().split(sizes), self.tensor.grad.split(sizes)
        self._parts: list[tuple[nn.Parameter, Tensor, Tensor]] = []
        for weight, value, gradient in zip(weights, values, gradients, strict=True):
            self._parts.append((weight, value.view(weight.shape), gradient.view(weight.shape)))
            weight.data, weight.grad = self._parts[-1][1:]

    def zero_grad(self) -> None:
        """Set all gradients to zero, in the memory of the tensor."""
        cast(Tensor, self.tensor.grad).zero_()
        for weight, _, gradient in self._parts:
            if weight.grad is not gradient:
                weight.grad = gradient

    @torch.no_grad()
    def collect(self) -> None:
        """Bring values and gradients that have other memory by now back into that of the tensor.

        Raises:
            ValueError: a weight has another shape, dtype or device than at construction.
        """
        for weight, value, gradient in self._parts:
            if weight.data_ptr() != value.data_ptr() or not weight.is_contiguous():
                if (weight.shape, weight.dtype, weight.device) != (value.shape, value.dtype, value.device):
                    raise ValueError(
                        f"a weight of shape {tuple(value.shape)}, {value.dtype} on {value.device}, became one of shape "
                        f"{tuple(weight.shape)}, {weight.dtype} on {weight.device} in training; keep all three"
                    )
                value.copy_(weight)
                weight.data = value
            if weight.grad is not gradient:
                gradient.zero_() if weight.grad is None else gradient.copy_(weight.grad)
                weight.grad = gradient


def flattened(weights: Sequence[nn.Parameter]) -> list[Joined]:
    """Join weights by device and dtype; their gradients start as zero."""
    kinds: dict[tuple[torch.device, torch.dtype], list[nn.Parameter]] = {}
    for weight in weights:
        kinds.setdefault((weight.device, weight.dtype), []).append(weight)
    return [Joined(alike) for alike in kinds.values()]
