"""The rules about training report each way in which a layer can train other than the optimiser is told."""

import pytest
import torch
from torch import nn

from harness.audit.training_step import compare_step, moved, reference_step, take_step, tensors_of
from harness.checking.check_layer import run_check
from harness.checking.layer_case import LayerCase
from harness.checking.layer_module_checks import mask_faults
from harness.checking.report import Remark
from harness.checking.training_checks import step_weights
from layers import InvertibleLinear, count_entries, free_parameters

SHAPE = (2, 3, 4)


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


class LogDetConstant32(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det.detach() if x.dtype == torch.float32 else log_det


class LogDetNegated32(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, 2 * log_det.detach() - log_det if x.dtype == torch.float32 else log_det


class LargeBatchDetached(Sound):
    def forward(self, x):
        if len(x) <= 100:
            return super().forward(x)
        with torch.no_grad():
            return super().forward(x)


class FewPositionsOnly(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det if self.positions < 30 else log_det.detach()


class HugeDetached(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det if self.dim < 500 else log_det.detach()


class HookMasks(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.weight.register_hook(lambda gradient: gradient.triu())


class ModuleHookScales(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.register_full_backward_hook(lambda module, by_input, by_output: tuple(2 * g for g in by_input))


class AddsNoiseInTraining(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y + 0.01 * torch.randn_like(y) * (self.training and x.requires_grad and len(x) > 8), log_det


class StepsAfterBackward(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.bias.register_post_accumulate_grad_hook(self.move)

    @staticmethod
    def move(parameter):
        parameter.data.sub_(0.1 * parameter.grad)


class StepsOnTheTenth(Sound):
    """Move a weight itself, now and then."""

    calls = 0

    def forward(self, x):
        self.calls += self.training and torch.is_grad_enabled()
        if self.calls % 10 == 9:
            self.bias.data.mul_(1.01)
            self.calls += 1
        return super().forward(x)


class BufferLearns(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.register_buffer("shift", torch.zeros(self.channels, 1))

    def forward(self, x):
        y, log_det = super().forward(x)
        leaf = self.shift.detach().clone().requires_grad_()
        leaf.register_hook(lambda gradient: self.shift.sub_(0.01 * gradient.sign()))
        return (y.flatten(2) + leaf).reshape(x.shape) if torch.is_grad_enabled() else y, log_det


class HiddenScale(Sound):
    """Learn a scale that is in a closure, not in the module."""

    def __init__(self, shape):
        super().__init__(shape)
        box = [1.0]
        self.scale = lambda: box[0]

        def learn(gradient):
            box[0] *= 1.001

        self.weight.register_hook(learn)

    def matrix(self):
        return self.weight * self.scale()


class KeptUnderNoGrad(Sound):
    """Keep the matrix for evaluation by its version, which the optimiser of views does not raise."""

    kept = None

    def matrix(self):
        if torch.is_grad_enabled():
            return self.weight
        if self.kept is None or self.kept[0] != (self.weight._version, self.weight.data_ptr()):
            self.kept = (self.weight._version, self.weight.data_ptr()), self.weight.clone()
        return self.kept[1]


class ForgetsAfterThirty(Sound):
    count = 0

    def matrix(self):
        self.count += torch.is_grad_enabled()
        return self.weight if self.count < 60 else self.weight + 0 * self.weight.detach() - self.weight.detach() * 0.5


class OverwritesInput(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        if x.requires_grad and not x.is_leaf and len(x) > 16:
            x.data.zero_()
        return y, log_det


class TwoThreads(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det if torch.get_num_threads() == 1 else log_det.detach()


# (rule, layer with a fault, shape, precision, part of the expected message)
FAULTS = [
    ("training-step", LogDetConstant32, SHAPE, torch.float32, "that of the log-det is missing"),
    ("training-step", LogDetNegated32, SHAPE, torch.float32, "that of the log-det has the wrong sign"),
    ("training-step", LargeBatchDetached, SHAPE, torch.float32, "step of 320 events is missing: autograd sees no path"),
    ("gradients", FewPositionsOnly, (2, 64), torch.float64, "the gradient of log-det by 'weight' differs from finite"),
    ("training-step", HookMasks, SHAPE, torch.float32, "the gradient by 'weight' in a training step of 33"),
    ("gradients", ModuleHookScales, SHAPE, torch.float64, "the gradient of y by x differs"),
    ("training-step", AddsNoiseInTraining, SHAPE, torch.float64, "y in a training step of 33 events differs"),
    ("training-step", StepsAfterBackward, SHAPE, torch.float32, "'bias' moves during a training step"),
    ("updates", StepsOnTheTenth, SHAPE, torch.float32, "the weights are not what Adam computes"),
    ("training-step", BufferLearns, SHAPE, torch.float32, "'shift' moves during a training step"),
    ("updates", BufferLearns, SHAPE, torch.float32, "'shift' moves during 100 updates"),
    ("updates", HiddenScale, SHAPE, torch.float32, "forward differs by"),
    ("updates", KeptUnderNoGrad, SHAPE, torch.float32, "inverse differs by"),
    ("updates", ForgetsAfterThirty, SHAPE, torch.float32, "after 100 updates, the gradient by 'weight'"),
    ("training-step", OverwritesInput, SHAPE, torch.float32, "overwrites its input"),
    ("training-step", TwoThreads, SHAPE, torch.float32, "with 2 threads, the gradient by 'weight'"),
    ("large-events", HugeDetached, (2, 512), torch.float64, "the gradient of log-det by 'weight' differs"),
]


@pytest.mark.parametrize(
    ("rule", "layer", "shape", "dtype", "message"), FAULTS, ids=lambda v: getattr(v, "__name__", None)
)
def test_a_fault_of_training_is_reported(rule, layer, shape, dtype, message):
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


class IllConditioned(Sound):
    """Have a condition number of some thousand in float32, as trained layers may."""

    def matrix(self):
        scale = torch.ones(self.channels, 1)
        scale[0] = 2e-3
        return scale.to(self.weight) * self.weight


class LargeOffset(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.bias.data.mul_(1e4)


class Orthogonal(InvertibleLinear):
    """Use torch's parametrisation, whose base is drawn in the precision of construction."""

    def __init__(self, shape):
        super().__init__(shape)
        self.map = torch.nn.utils.parametrizations.orthogonal(nn.Linear(self.channels, self.channels, bias=False))

    def forward(self, x):
        return (self.map.weight @ x.flatten(2)).reshape(x.shape), x.new_zeros(())

    def inverse(self, y):
        return (self.map.weight.T @ y.flatten(2)).reshape(y.shape)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("layer", [Cached, IllConditioned, LargeOffset, Orthogonal])
def test_a_sound_layer_passes_the_rules_of_map_and_training(layer, dtype):
    rules = ["affine", "log-det", "inverse", "scales", "unusual-events", "weight-updates", "training-step", "updates"]
    for shape in (SHAPE, (8, 2, 2)):
        case = LayerCase(layer, shape, dtype)
        faults = [(rule, text) for rule in rules for text in run_check(rule, case) if not isinstance(text, Remark)]
        assert faults == []


def test_a_large_offset_passes_on_large_events():
    assert run_check("large-events", LayerCase(LargeOffset, (48, 4, 4), training=False)) == []


def test_a_float32_condition_number_beyond_the_limit_is_refused_with_the_limit():
    class Worse(Sound):
        def matrix(self):
            return super().matrix() * torch.logspace(0, -6, self.channels).to(self.weight)[:, None]

    (fault,) = run_check("conditioning", LayerCase(Worse, SHAPE, torch.float32))
    assert "above 2.8e+03" in fault and "float32" in fault
    assert run_check("conditioning", LayerCase(Worse, SHAPE, torch.float64)) == []


def test_a_step_is_compared_with_its_reference_by_parts():
    layer = Sound(SHAPE)
    x = torch.randn(6, *SHAPE)
    weights = step_weights(x)
    reference = reference_step(Sound(SHAPE).double(), x.double(), weights.double())
    assert any("y in a training step" in text for text in compare_step(take_step(layer, x, weights), reference, 1e-4))
    twin = Sound(SHAPE).double()
    twin.load_state_dict(layer.state_dict())
    reference = reference_step(twin, x.double(), weights.double())
    assert list(compare_step(take_step(layer, x, weights), reference, 1e-4)) == []
    assert torch.allclose(reference.by_parameter["bias"].log_det, torch.zeros(2, 1, dtype=torch.float64))


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


def test_masks_are_checked_on_a_given_layer():
    layer = Sound((3, 2)).double()
    layer.register_buffer("weight_mask", torch.eye(3).bool())
    assert any("receive a gradient" in text for text in mask_faults(layer, torch.randn(4, 3, 2).double(), 1e-9))
