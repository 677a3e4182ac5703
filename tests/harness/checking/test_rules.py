"""Each rule of check-layer reports the fault that it is for, and accepts a correct layer."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from harness.checking.check_layer import CHECKS, run_check
from harness.checking.layer_case import LayerCase
from harness.checking.layer_faults import explain_log_det, shown_apart
from harness.checking.report import Remark, Unanswered
from layers import InvertibleLinear


class Sound(InvertibleLinear):
    """y = diag(s) x + b per channel, with weights hidden by a mask; each class below adds one fault."""

    def __init__(self, shape, offset: bool = True):
        super().__init__(shape)
        self.log_scale = nn.Parameter(torch.randn(2, self.channels))
        self.bias = nn.Parameter(torch.randn(self.channels)) if offset else None
        self.register_buffer("log_scale_mask", torch.tensor([[True], [False]]), persistent=False)

    def scale(self):
        return self.log_scale[0].exp().reshape(-1, *[1] * (len(self.shape) - 1))

    def offset(self):
        return 0 if self.bias is None else self.bias.reshape(-1, *[1] * (len(self.shape) - 1))

    def forward(self, x):
        return self.scale() * x + self.offset(), self.positions * self.log_scale[0].sum()

    def inverse(self, y):
        return (y - self.offset()) / self.scale()


class ShrinksSmooth(Sound):
    """Shrink events with equal neighbours, as no noise has."""

    def gain(self, x):
        equal = (x[..., 1:] == x[..., :-1]).flatten(1).all(1).reshape(-1, *[1] * (x.ndim - 1))
        return torch.where(equal & (x != 0), 0.5, 1.0).to(x)

    def forward(self, x):
        y, log_det = super().forward(self.gain(x) * x)
        return y, log_det


class Complex(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.spectrum = nn.Parameter(torch.ones(self.channels, dtype=torch.complex64))


class OnlyY(Sound):
    def forward(self, x):
        return super().forward(x)[0]


class Float32Y(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y.float(), log_det


class Singular(Sound):
    def scale(self):
        return 0 * super().scale()


class NotLinear(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y + 0.1 * x.square(), log_det


class LogDetOfOnePosition(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det / self.positions


class LogDetOfX(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det + 1e-3 * x.square().mean()


class LogDetOfBatch(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det * len(x)


class OtherLogDetAlone(Sound):
    def log_det(self):
        return self.log_scale[0].sum()


class SameLogDetInReverse(Sound):
    def inverse_log_det(self, y):
        return self.positions * self.log_scale[0].sum()


class OtherInverter(Sound):
    def inverse(self, y):
        return super().inverse(y)

    def inverter(self):
        return lambda y: y / self.scale()


class DetachedY(Sound):
    def scale(self):
        return super().scale().detach()


class UntypedOption(Sound):
    def __init__(self, shape, rank=3):
        super().__init__(shape)


class RequiredOption(Sound):
    def __init__(self, shape, rank: int):
        super().__init__(shape)


class AnyShape(Sound):
    def __init__(self, shape):
        super().__init__(shape if len(shape) in (2, 3) else (1, 2))


SEEDS = itertools.count()


class OwnGenerator(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.log_scale.data = torch.randn(self.log_scale.shape, generator=torch.Generator().manual_seed(next(SEEDS)))


class LateParameter(Sound):
    def forward(self, x):
        if not hasattr(self, "late"):
            self.late = nn.Parameter(torch.zeros(()))
        return super().forward(x)


class CountsCalls(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.register_buffer("calls", torch.zeros(()))

    def inverse(self, y):
        self.calls += 1
        return super().inverse(y)


class InPlace(Sound):
    def forward(self, x):
        return x.mul_(self.scale()).add_(self.offset()), self.positions * self.log_scale[0].sum()


class Noisy(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y + 1e-9 * torch.randn_like(y), log_det


class OtherInEval(Sound):
    def scale(self):
        return super().scale() * (1 if self.training else 1.1)


class NoGraph(Sound):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)


class LeakyMask(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y + self.log_scale[1].sum(), log_det


class FloatMask(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.log_scale_mask = self.log_scale_mask.float()


class SharedCopies(Sound):
    def __deepcopy__(self, memo):
        return self


class UnsavedScale(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.factor = 1 + torch.rand(1)

    def scale(self):
        return super().scale() * self.factor.to(self.log_scale)

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det + self.dim * self.factor.log()


class LeftBehind(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.constant = torch.zeros(1, dtype=torch.float64)

    def offset(self):
        return super().offset() + self.constant


class MixesBatch(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y + x.mean(0), log_det


class NeedsContiguous(Sound):
    def forward(self, x):
        return super().forward(x.view(len(x), -1).view(x.shape))


class Unchecked(Sound):
    def check_event(self, x):
        pass


class Mumbles(Sound):
    def check_event(self, x):
        if x.shape[1:] != self.shape:
            raise ValueError("bad input")


class Saturates(Sound):
    def inverse(self, y):
        return super().inverse(y.clamp(-6, 6))


class CachesByInput(Sound):
    """Return the cached result if the same tensor object is passed in again."""

    last = None

    def forward(self, x):
        if self.last is None or self.last[0] is not x:
            self.last = x, super().forward(x)
        return self.last[1]


class KeepsItsInverse(Sound):
    """Keep the scale of the first call in eval(), even after other weights were loaded."""

    kept = None

    def inverse(self, y):
        if self.training:
            return super().inverse(y)
        if self.kept is None:
            self.kept = self.scale().detach()
        return (y - self.offset()) / self.kept.to(y)


class Idle(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.idle = nn.Parameter(torch.zeros(7))


class Listed(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.hidden = [nn.Parameter(torch.ones(1))]

    def scale(self):
        return super().scale() * self.hidden[0].to(self.log_scale)


class SetsDefaultDtype(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        torch.set_default_dtype(torch.float64)


class StopsRecording(Sound):
    def forward(self, x):
        result = super().forward(x)
        torch.set_grad_enabled(False)
        return result


class SetsThreadsInBackward(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        self.log_scale.register_hook(lambda gradient: torch.set_num_threads(torch.get_num_threads() + 1))


class SeedsInInverse(Sound):
    def inverse(self, y):
        torch.manual_seed(0)
        return super().inverse(y)


class SeedsNumpy(Sound):
    def __init__(self, shape):
        super().__init__(shape)
        np.random.seed(0)  # noqa: NPY002  the fault


class InvertsByNumpy(Sound):
    def inverse(self, y):
        if torch.is_grad_enabled():
            return super().inverse(y)
        return torch.from_numpy(super().inverse(y).detach().numpy() + 0)


class Standardises(Sound):
    """Set the initial scale from data."""

    def initialise(self, x):
        self.log_scale[0].copy_(-x.transpose(0, 1).flatten(1).std(1).log())


class InFirstForward(Standardises):
    """Do it in the first call instead, though a flow calls `initialise`."""

    done = False

    def forward(self, x):
        if not self.done:
            with torch.no_grad():
                Standardises.initialise(self, x)
            self.done = True
        return super().forward(x)


class DrawsEvents(Standardises):
    def initialise(self, x):
        super().initialise(x[torch.randperm(len(x))[:64]])


class LateBuffer(Standardises):
    def initialise(self, x):
        self.register_buffer("late", torch.zeros(()))


class Centres(Standardises):
    def initialise(self, x):
        super().initialise(x.sub_(x.mean()))


class NeedsInitialise(Standardises):
    def __init__(self, shape):
        super().__init__(shape)
        self.register_buffer("initialised", torch.zeros(()))

    def initialise(self, x):
        super().initialise(x)
        self.initialised.fill_(1)

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det * self.initialised


class UnsavedStart(Standardises):
    factor = 1.0

    def initialise(self, x):
        self.factor = float(x.std())

    def scale(self):
        return super().scale() * self.factor


class Broken(Sound):
    def inverse(self, y):
        raise RuntimeError("no such kernel")


# (rule, layer with a fault, part of the expected message)
FAULTS = [
    ("forward", OnlyY, "forward returns Tensor, not a pair"),
    ("forward", Float32Y, "y is torch.float32"),
    ("forward", InFirstForward, "in a method initialise(x)"),
    ("conditioning", Singular, "W has condition number"),
    ("affine", NotLinear, "not a linear map"),
    ("dense", NotLinear, "differs from dense() @ x + b"),
    ("log-det", LogDetOfOnePosition, "multiply by n = H * W"),
    ("large-events", LogDetOfOnePosition, "but slogdet of the map is"),
    ("log-det-form", LogDetOfX, "log-det changes by"),
    ("log-det-form", LogDetOfX, "between events"),
    ("log-det-form", LogDetOfBatch, "for a batch of one"),
    ("log-det-method", OtherLogDetAlone, "log_det() differs from the log-det of forward"),
    ("reverse-log-det", SameLogDetInReverse, "it is that of forward, with its sign"),
    ("inverter", OtherInverter, "the first call of inverter()'s result differs"),
    ("gradients", DetachedY, "the gradient of y by 'log_scale' differs"),
    ("unusual-events", ShrinksSmooth, "y of constant events differs by"),
    ("real-parameters", Complex, "'spectrum' is complex"),
    ("options", UntypedOption, "option 'rank' has no type hint"),
    ("options", RequiredOption, "option 'rank' has no default"),
    ("refusals", AnyShape, "shape (4,) is accepted"),
    ("seeding", OwnGenerator, "'log_scale' differs between two layers of one seed"),
    ("initialisation", DrawsEvents, "'log_scale' differs between two calls of initialise"),
    ("initialisation", LateBuffer, "'late' appears or vanishes in initialise"),
    ("initialisation", Centres, "overwrites its input"),
    ("initialisation", NeedsInitialise, "but slogdet of the map is"),
    ("reload", UnsavedStart, "y differs after reload"),
    ("unchanged-state", LateParameter, "'late' appears or vanishes"),
    ("unchanged-state", CountsCalls, "changes 'calls'"),
    ("unchanged-state", InPlace, "overwrites its input"),
    ("unchanged-state", Noisy, "two calls on the same input differ"),
    ("modes", OtherInEval, "after eval()"),
    ("modes", NoGraph, "y carries no gradient"),
    ("masks", LeakyMask, "hides change y"),
    ("masks", LeakyMask, "hides receive a gradient"),
    ("masks", FloatMask, "not boolean"),
    ("reload", UnsavedScale, "plain tensor attributes are lost: factor"),
    ("copies", SharedCopies, "shares state with the original"),
    ("precision", LeftBehind, "a constant was left behind"),
    ("batches", MixesBatch, "y of events one by one differs"),
    ("batches", NeedsContiguous, "view size is not compatible"),
    ("scales", Saturates, "inverse is off by"),
    ("weight-updates", CachesByInput, "after a change of weights forward still uses the old weights"),
    ("unused-parameters", Idle, "7 of 7 entries of 'idle' receive no gradient"),
    ("registered", Listed, "requires a gradient and is not among the module's parameters"),
    ("wrong-input", Unchecked, "is accepted: leave check_event to the base class"),
    ("wrong-input", Mumbles, "names no shape: bad input"),
    ("global-settings", SetsDefaultDtype, "construction changes default dtype: torch.float32 -> torch.float64"),
    ("global-settings", StopsRecording, "forward changes grad mode: True -> False"),
    ("global-settings", SetsThreadsInBackward, "backward changes threads"),
    ("global-settings", SeedsInInverse, "inverse seeds the global generator of torch"),
    ("global-settings", SeedsNumpy, "construction seeds the global generator of NumPy"),
    (
        "memory",
        InvertsByNumpy,
        "inverse under no_grad takes 1.0 times the memory of its input outside torch's allocator",
    ),
    ("inverse", Broken, "RuntimeError at"),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("check", CHECKS)
def test_a_correct_layer_passes_each_rule(check, dtype):
    for shape in [(2, 3, 4), (3, 5)]:
        assert run_check(check, LayerCase(Sound, shape, dtype)) == []


@pytest.mark.parametrize(("check", "layer", "message"), FAULTS, ids=lambda value: getattr(value, "__name__", None))
def test_each_rule_reports_its_fault(check, layer, message):
    case = LayerCase(layer, (2, 3, 4))
    if check == "memory":  # which looks at one way of use
        case = replace(case, dtype=torch.float32, training=False)
    assert message in "\n".join(run_check(check, case))


def test_a_cache_in_eval_is_reported_after_weights_were_loaded():
    found = run_check("weight-updates", LayerCase(KeepsItsInverse, (2, 3, 4), training=False))
    assert any("after load_state_dict inverse still uses the old weights" in text for text in found)


class Frozen(Sound):
    """Scale by a frozen parameter, which must keep its values and needs no gradient."""

    def __init__(self, shape):
        super().__init__(shape)
        self.sign = nn.Parameter(torch.ones(1), requires_grad=False)

    def scale(self):
        if self.sign != 1:
            raise ValueError("a frozen parameter was changed")
        return super().scale() * self.sign


class Reversed(InvertibleLinear):
    """Reverse the channels, without any parameter or buffer."""

    def forward(self, x):
        return x.flip(1), x.new_zeros(())

    def inverse(self, y):
        return y.flip(1)


def test_a_slow_layer_is_left_out_before_anything_else_is_computed_on_large_events(monkeypatch):
    monkeypatch.setattr("harness.checking.large_checks.SLOWEST_PASS", 0.0)
    monkeypatch.setattr("harness.checking.large_checks._conditioned", None)
    [found] = run_check("large-events", LayerCase(Sound, (2, 3, 4)))
    assert isinstance(found, Unanswered) and "a forward pass of 16 events takes" in found


@pytest.mark.parametrize("layer", [Frozen, Reversed, Standardises])
@pytest.mark.parametrize("check", CHECKS)
def test_frozen_parameters_no_parameters_and_initialisation_from_data_are_accepted(check, layer):
    assert [text for text in run_check(check, LayerCase(layer, (2, 3, 4))) if not isinstance(text, Remark)] == []


def test_close_numbers_are_printed_with_enough_digits_to_differ():
    assert shown_apart(4.0361234567, 4.0361239) == ("4.036123", "4.036124")
    assert shown_apart(1.0, 2.0) == ("1", "2")


@pytest.mark.parametrize(
    ("claimed", "hint"), [(1.0, "multiply by n = H * W"), (12.0 - 1e-6, ""), (7.0, ""), (-12.0, "the sign is wrong")]
)
def test_the_message_explains_known_errors_of_a_log_det_only(claimed, hint):
    text = explain_log_det(claimed, 12.0, Sound((1, 3, 4)))
    assert hint in text and bool(hint) == bool(text)


def test_every_rule_has_a_fault():
    in_training = {"training-step", "updates"}  # test_training_rules.py
    assert {check for check, _, _ in FAULTS} | in_training == set(CHECKS)
