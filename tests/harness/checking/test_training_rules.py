"""The rules about training report each way in which a layer can train other than the optimiser is told."""

from functools import partial

import pytest
import torch
import variants
from torch import nn

from harness.audit.module_state import moved, tensors_of, used
from harness.checking.check_layer import run_check
from harness.checking.layer_case import LayerCase
from harness.checking.report import Remark
from layers import InvertibleLinear, count_entries, free_parameters

SHAPE = (2, 3, 4)
IN_TRAINING = ["weights-kept", "training-step", "updates"]


class Sound(InvertibleLinear):
    """A dense 1x1 convolution with offset; each class below adds one fault."""

    def __init__(self, shape):
        super().__init__(shape)
        self.weight = nn.Parameter(torch.eye(self.channels) + 0.2 * torch.randn(self.channels, self.channels))
        self.bias = nn.Parameter(torch.randn(self.channels, 1))

    def matrix(self):
        return self.weight

    def forward(self, x):
        w = self.matrix()
        y = w @ x.flatten(2) + self.bias
        return y.reshape(x.shape), self.positions * torch.linalg.slogdet(w).logabsdet

    def inverse(self, y):
        return torch.linalg.solve(self.matrix(), y.flatten(2) - self.bias).reshape(y.shape)


variant, output, started = (partial(make, Sound) for make in (variants.variant, variants.output, variants.started))


def with_log_det(change, when):
    """Return a layer with `change(log_det)` when `when(layer, x)` holds."""
    return output(lambda self, x, y, log_det: (y, change(log_det) if when(self, x) else log_det))


def in_float32(layer, x):
    return x.dtype == torch.float32


def detach_large_batches(self, x):
    with torch.set_grad_enabled(torch.is_grad_enabled() and len(x) <= 100):
        return Sound.forward(self, x)


def step_on_the_tenth(self, x):
    """Move a weight itself, now and then."""
    self.calls = getattr(self, "calls", 0) + (self.training and torch.is_grad_enabled())
    if self.calls % 10 == 9:
        self.bias.data.mul_(1.01)
        self.calls += 1
    return Sound.forward(self, x)


def move(parameter):
    parameter.data.sub_(0.1 * parameter.grad)


def learn_buffer(self, x, y, log_det):
    leaf = self.shift.detach().clone().requires_grad_()
    leaf.register_hook(lambda gradient: self.shift.sub_(0.01 * gradient.sign()))
    return (y.flatten(2) + leaf).reshape(x.shape) if torch.is_grad_enabled() else y, log_det


def learn_hidden_scale(self):
    """Learn a scale that is in a closure, not in the module."""
    box = [1.0]
    self.scale = lambda: box[0]

    def learn(gradient):
        box[0] *= 1.001

    self.weight.register_hook(learn)


def keep_under_no_grad(self):
    """Keep the matrix for evaluation by its version, which the optimiser of views does not raise."""
    if torch.is_grad_enabled():
        return self.weight
    key = self.weight._version, self.weight.data_ptr()
    if getattr(self, "kept", (None,))[0] != key:
        self.kept = key, self.weight.clone()
    return self.kept[1]


def forget_after_thirty(self):
    self.count = getattr(self, "count", 0) + torch.is_grad_enabled()
    return self.weight if self.count < 60 else self.weight - self.weight.detach() * 0.5


def overwrite_input(self, x, y, log_det):
    if x.requires_grad and not x.is_leaf and len(x) > 16:
        x.data.zero_()
    return y, log_det


def rebound(self):
    """Limit the weights by an assignment to .data, which gives them other memory."""
    self.weight.data = self.weight.data.clamp(-3, 3)
    return self.weight


def replace_in_eval(self, mode=True):
    if not mode:
        self.weight = nn.Parameter(self.weight.detach().clone())
    return Sound.train(self, mode)


def without_gradient(self):
    if self.training:
        self.weight.grad = None
    return self.weight


def thaw(self, x):
    self.bias.requires_grad_(True)


def detach_once(self):
    """Detach the weight in the seventieth training step."""
    self.count = getattr(self, "count", 0) + (self.training and torch.is_grad_enabled())
    return self.weight.detach() if self.count == 70 else self.weight


class Backward(torch.autograd.Function):
    """The identity, whose backward pass is `change`."""

    @staticmethod
    def forward(ctx, value, change):
        ctx.change = change
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.change(gradient), None


def clipped(gradient):
    return gradient if gradient.abs().max() > 0.005 else gradient.clamp(-1e-5, 1e-5)


def sparsified(gradient):
    return gradient.where(gradient.abs() > 1e-3 * gradient.abs().max(), 0.0)


BUFFER_LEARNS = started(
    lambda self: self.register_buffer("shift", torch.zeros(self.channels, 1)),
    forward=lambda self, x: learn_buffer(self, x, *Sound.forward(self, x)),
)

# (rule, layer with a fault, part of the expected message), on `SHAPE` in float32
FAULTS = [
    ("training-step", with_log_det(torch.Tensor.detach, in_float32), "the gradient by 'weight' in"),
    (
        "training-step",
        with_log_det(lambda value: 2 * value.detach() - value, in_float32),
        "the gradient by 'weight' in",
    ),
    ("training-step", variant(forward=detach_large_batches), "events is missing: autograd sees no path"),
    ("training-step", started(lambda self: self.weight.register_hook(torch.triu)), "the gradient by 'weight' in a"),
    (
        "training-step",
        started(lambda self: self.bias.register_post_accumulate_grad_hook(move)),
        "'bias' moves during a training step",
    ),
    ("training-step", BUFFER_LEARNS, "'shift' moves during a training step"),
    ("training-step", output(overwrite_input), "overwrites its input"),
    (
        "training-step",
        with_log_det(torch.Tensor.detach, lambda self, x: torch.get_num_threads() > 1),
        "with 2 threads, the gradient by 'weight'",
    ),
    (
        "training-step",
        variant(forward=lambda self, x: Sound.forward(self, Backward.apply(x, clipped))),
        "the gradient by x in a training step of",
    ),
    (
        "training-step",
        variant(matrix=lambda self: Backward.apply(self.weight, sparsified)),
        "loses what is small beside that of the first entry of y",
    ),
    ("weights-kept", variant(matrix=rebound), "a training step gives 'weight' other memory"),
    ("weights-kept", variant(train=replace_in_eval), "eval() replaces 'weight'"),
    ("weights-kept", variant(matrix=without_gradient), "a training step replaces or removes the gradient of 'weight'"),
    (
        "weights-kept",
        started(lambda self: self.bias.requires_grad_(False), initialise=thaw),
        "initialise thaws 'bias', after parameters are counted",
    ),
    ("updates", variant(forward=step_on_the_tenth), "the weights are not what Adam computes"),
    ("updates", BUFFER_LEARNS, "'shift' moves during 80 updates"),
    ("updates", started(learn_hidden_scale, matrix=lambda self: self.weight * self.scale()), "y differs by"),
    ("updates", variant(matrix=keep_under_no_grad), "inverse differs by"),
    ("updates", variant(matrix=forget_after_thirty), "after 80 updates, the gradient by 'weight'"),
]
# the same, on another shape or in float64
OTHERS = [
    (
        "gradients",
        with_log_det(torch.Tensor.detach, lambda self, x: self.positions >= 30),
        "the gradient of log-det by 'weight' differs from finite",
        (2, 64),
    ),
    (
        "gradients",
        started(lambda self: self.register_full_backward_hook(lambda _, by_x, by_y: tuple(2 * g for g in by_x))),
        "the gradient of y by x differs",
        SHAPE,
    ),
    (
        "training-step",
        output(
            lambda self, x, y, log_det: (
                y + 0.01 * torch.randn_like(y) * (self.training and x.requires_grad and len(x) > 8),
                log_det,
            )
        ),
        "y in a training step of",
        SHAPE,
    ),
    ("copies", started(lambda self: setattr(self, "matrix", lambda: self.weight)), "of a deep copy with other", SHAPE),
    (
        "large-events",
        variant(inverse=lambda self, y: (1 + 1e-2 * (y.dtype == torch.float32)) * Sound.inverse(self, y)),
        "inverse in float32 differs from that in float64 by 0.01",
        (2, 512),
    ),
    (
        "large-events",
        with_log_det(torch.Tensor.detach, lambda self, x: self.dim >= 500),
        "the gradient of log-det by 'weight' differs",
        (2, 512),
    ),
]


@pytest.mark.parametrize(
    ("rule", "layer", "message", "shape", "dtype"),
    [(*fault, SHAPE, torch.float32) for fault in FAULTS] + [(*fault, torch.float64) for fault in OTHERS],
)
def test_a_fault_of_training_is_reported(rule, layer, message, shape, dtype):
    faults = run_check(rule, LayerCase(layer, shape, dtype, training=rule != "large-events"))
    assert message in "\n".join(faults)


class Cached(Sound):
    """Keep the matrix of a forward pass in a plain attribute, and count calls in a buffer: no fault."""

    kept = None

    def __init__(self, shape):
        super().__init__(shape)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.calls += 1
        self.kept = self.weight.detach().clone()
        return super().forward(x)


ILL_CONDITIONED = variant(  # in float32 by some thousand, as trained layers may be
    matrix=lambda self: torch.ones(self.channels, 1).index_fill_(0, torch.tensor(0), 2e-3).to(self.weight) * self.weight
)
LARGE_OFFSET = started(lambda self: self.bias.data.mul_(1e4))


class Orthogonal(InvertibleLinear):
    """Use torch's parametrisation, whose base is drawn in the precision of construction."""

    def __init__(self, shape):
        super().__init__(shape)
        self.map = torch.nn.utils.parametrizations.orthogonal(nn.Linear(self.channels, self.channels, bias=False))

    def forward(self, x):
        return (self.map.weight @ x.flatten(2)).reshape(x.shape), x.new_zeros(())

    def inverse(self, y):
        return (self.map.weight.T @ y.flatten(2)).reshape(y.shape)


@pytest.mark.parametrize(("dtype", "shape"), [(torch.float64, SHAPE), (torch.float32, (8, 2, 2))], ids=str)
@pytest.mark.parametrize("layer", [Cached, ILL_CONDITIONED, LARGE_OFFSET, Orthogonal])
def test_a_sound_layer_passes_the_rules_of_map_and_training(layer, dtype, shape):
    rules = ["affine", "log-det", "inverse", "weight-updates", *IN_TRAINING]
    case = LayerCase(layer, shape, dtype)
    faults = [(rule, text) for rule in rules for text in run_check(rule, case) if not isinstance(text, Remark)]
    assert faults == []


def test_the_gradients_of_each_update_are_compared():
    faults = run_check("updates", LayerCase(variant(matrix=detach_once), (3, 5), torch.float32))
    assert any("the gradient by 'weight' in update 70" in text for text in faults), faults


class Diagnosed(Sound):
    """Keep a mean of the events in a buffer, and the parameters in a plain list as well, and use the list: no fault."""

    def __init__(self, shape):
        super().__init__(shape)
        self.both = [self.weight, self.bias]
        self.register_buffer("mean", torch.zeros(self.channels))

    def matrix(self):
        return self.both[0]

    def forward(self, x):
        with torch.no_grad():
            self.mean.lerp_(x.flatten(2).mean((0, 2)), 0.1)
        return super().forward(x)


@pytest.mark.parametrize("rule", ["unchanged-state", "copies", "gradients", "weights-kept", "training-step", "updates"])
def test_what_no_result_depends_on_and_other_references_to_parameters_are_no_faults(rule):
    messages = run_check(rule, LayerCase(Diagnosed, (3, 5), torch.float32))
    assert [text for text in messages if not isinstance(text, Remark)] == []
    assert bool(messages) == (rule == "unchanged-state")


def test_a_buffer_that_a_result_depends_on_is_used():
    layer = Cached(SHAPE)
    layer.register_buffer("shift", torch.zeros(1))
    layer.register_buffer("idle", torch.zeros(1))
    layer.inverse = lambda y: Sound.inverse(layer, y - layer.shift)
    assert used(layer, ["shift", "idle"], torch.randn(3, *SHAPE)) == ["shift", "idle"]
    assert used(layer, ["idle"], torch.randn(3, *SHAPE)) == []
    assert torch.equal(layer.idle, torch.zeros(1)) and layer.training


def test_a_large_offset_passes_on_large_events():
    assert run_check("large-events", LayerCase(LARGE_OFFSET, (48, 4, 4), training=False)) == []


def test_a_float32_condition_number_beyond_the_limit_is_refused_with_the_limit():
    worse = variant(matrix=lambda self: self.weight * torch.logspace(0, -6, self.channels).to(self.weight)[:, None])
    (fault,) = run_check("conditioning", LayerCase(worse, SHAPE, torch.float32))
    assert "above 2.8e+03" in fault and "float32" in fault
    assert run_check("conditioning", LayerCase(worse, SHAPE, torch.float64)) == []


def test_tensors_in_lists_and_attributes_are_held_and_counters_are_not_moves():
    layer = Cached(SHAPE)
    layer.more = {"values": [torch.zeros(2)]}
    before = tensors_of(layer)
    layer.more["values"][0] += 1
    layer.calls += 1
    layer.bias.data += 1
    assert moved(before, tensors_of(layer)) == ["bias", "more[0]"]


def test_complex_entries_count_twice_with_and_without_a_mask():
    module = nn.Module()
    module.real = nn.Parameter(torch.zeros(3))
    module.spectrum = nn.Parameter(torch.zeros(5, dtype=torch.complex64))
    assert count_entries(module.parameters()) == free_parameters(module) == 13
    module.register_buffer("spectrum_mask", torch.tensor([True, True, False, False, False]))
    assert free_parameters(module) == 7
