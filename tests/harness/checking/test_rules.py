"""Each rule of check-layer reports the fault that it is for, and accepts a correct layer."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import variants
from torch import nn

from harness.checking.check_layer import CHECKS, run_check
from harness.checking.layer_case import LayerCase
from harness.checking.layer_checks import explain_log_det
from harness.checking.report import Remark
from layers import InvertibleLinear


class Sound(InvertibleLinear):
    """y = diag(s) x + b per channel, with weights hidden by a mask."""

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


class Standardises(Sound):
    """Set the initial scale from data."""

    def initialise(self, x):
        self.log_scale[0].copy_(-x.transpose(0, 1).flatten(1).std(1).log())


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


variant, output, started = (partial(make, Sound) for make in (variants.variant, variants.output, variants.started))


def initialised(change, **members):
    """Return a layer that calls `change(layer, x)` to initialise itself from events."""
    return variants.variant(Standardises, initialise=change, **members)


def untyped_option(self, shape, rank=3):
    Sound.__init__(self, shape)


def required_option(self, shape, rank: int):
    Sound.__init__(self, shape)


def shrink_smooth(self, x, y, log_det):
    """Shrink events with equal neighbours, as no noise has."""
    equal = (x[..., 1:] == x[..., :-1]).flatten(1).all(1).reshape(-1, *[1] * (x.ndim - 1))
    return torch.where(equal & (x != 0), 0.5 * self.scale() * x + self.offset(), y), log_det


def without_graph(self, x):
    with torch.no_grad():
        return Sound.forward(self, x)


def late_parameter(self, x, y, log_det):
    if not hasattr(self, "late"):
        self.late = nn.Parameter(torch.zeros(()))
    return y, log_det


def counting_inverse(self, y):
    self.calls += 1
    return Sound.inverse(self, y)


def remember_by_input(self, x):
    """Return the kept result if the same tensor object is passed in again."""
    if getattr(self, "last", (None,))[0] is not x:
        self.last = x, Sound.forward(self, x)
    return self.last[1]


def keep_inverse(self, y):
    """Keep the scale of the first call in eval(), even after other weights were loaded."""
    if self.training:
        return Sound.inverse(self, y)
    if not hasattr(self, "kept"):
        self.kept = self.scale().detach()
    return (y - self.offset()) / self.kept.to(y)


def initialise_in_forward(self, x):
    if not getattr(self, "done", False):
        with torch.no_grad():
            Standardises.initialise(self, x)
        self.done = True
    return Sound.forward(self, x)


def check_without_names(self, x):
    if x.shape[1:] != self.shape:
        raise ValueError("bad input")


def stop_recording(self, x, y, log_det):
    torch.set_grad_enabled(False)
    return y, log_det


def seed_torch(self, y):
    torch.manual_seed(0)
    return Sound.inverse(self, y)


def inverse_by_numpy(self, y):
    if torch.is_grad_enabled():
        return Sound.inverse(self, y)
    return torch.from_numpy(Sound.inverse(self, y).detach().numpy() + 0)


def raise_in_inverse(self, y):
    raise RuntimeError("no such kernel")


def set_attribute(name, make):
    return lambda layer: setattr(layer, name, make(layer))


SEEDS = itertools.count()
OF_ONE_POSITION = output(lambda self, x, y, log_det: (y, log_det / self.positions))
NOT_LINEAR = output(lambda self, x, y, log_det: (y + 0.1 * x.square(), log_det))
LOG_DET_OF_X = output(lambda self, x, y, log_det: (y, log_det + 1e-3 * x.square().mean()))
LEAKY_MASK = output(lambda self, x, y, log_det: (y + self.log_scale[1].sum(), log_det))
NEEDS_INITIALISE = started(
    lambda self: self.register_buffer("initialised", torch.zeros(())),
    initialise=lambda self, x: self.initialised.fill_(1) and Standardises.initialise(self, x),
    forward=lambda self, x: (Sound.forward(self, x)[0], Sound.forward(self, x)[1] * self.initialised),
)
UNSAVED_SCALE = started(
    set_attribute("factor", lambda self: 1 + torch.rand(1)),
    scale=lambda self: Sound.scale(self) * self.factor.to(self.log_scale),
    forward=lambda self, x: (Sound.forward(self, x)[0], Sound.forward(self, x)[1] + self.dim * self.factor.log()),
)
UNSAVED_START = initialised(
    lambda self, x: setattr(self, "factor", float(x.std())),
    factor=1.0,
    scale=lambda self: Sound.scale(self) * self.factor,
)
SEPARATE_GENERATOR = started(
    lambda self: setattr(
        self.log_scale, "data", torch.randn(2, self.channels, generator=torch.Generator().manual_seed(next(SEEDS)))
    )
)

# (rule, layer with a fault, part of the expected message)
FAULTS = [
    ("forward", variant(forward=lambda self, x: Sound.forward(self, x)[0]), "forward returns Tensor, not a pair"),
    ("forward", output(lambda self, x, y, log_det: (y.float(), log_det)), "y is torch.float32"),
    ("forward", variants.variant(Standardises, forward=initialise_in_forward), "in a method initialise(x)"),
    ("conditioning", variant(scale=lambda self: 0 * Sound.scale(self)), "W has condition number"),
    ("affine", NOT_LINEAR, "y of normal events differs"),
    ("dense", NOT_LINEAR, "differs from dense() @ x + b"),
    ("log-det", OF_ONE_POSITION, "multiply by n = H * W"),
    ("large-events", OF_ONE_POSITION, "but slogdet of the map is"),
    ("log-det-form", LOG_DET_OF_X, "log-det changes by"),
    ("log-det-form", LOG_DET_OF_X, "between events"),
    ("log-det-form", output(lambda self, x, y, log_det: (y, log_det * len(x))), "for a batch of one"),
    ("log-det", variant(log_det=lambda self: self.log_scale[0].sum()), "log_det() differs from the log-det of"),
    (
        "reverse-log-det",
        variant(inverse_log_det=lambda self, y: self.positions * self.log_scale[0].sum()),
        "minus the log-det of the reverse direction is",
    ),
    (
        "inverter",
        variant(inverse=lambda self, y: Sound.inverse(self, y), inverter=lambda self: lambda y: y / self.scale()),
        "the first call of inverter()'s result differs",
    ),
    ("gradients", variant(scale=lambda self: Sound.scale(self).detach()), "the gradient of y by 'log_scale' differs"),
    ("affine", output(shrink_smooth), "y of constant events differs by"),
    (
        "real-parameters",
        started(set_attribute("spectrum", lambda self: nn.Parameter(torch.ones(self.channels, dtype=torch.complex64)))),
        "'spectrum' is complex",
    ),
    ("options", variant(__init__=required_option), "option 'rank' has no default"),
    (
        "refusals",
        variant(__init__=lambda self, shape: Sound.__init__(self, shape if len(shape) in (2, 3) else (1, 2))),
        "shape (4,) is accepted",
    ),
    ("seeding", SEPARATE_GENERATOR, "'log_scale' differs between two layers of one seed"),
    (
        "initialisation",
        initialised(lambda self, x: Standardises.initialise(self, x[torch.randperm(len(x))[:64]])),
        "'log_scale' differs between two calls of initialise",
    ),
    (
        "initialisation",
        initialised(lambda self, x: self.register_buffer("late", torch.zeros(()))),
        "'late' appears or vanishes in initialise",
    ),
    (
        "initialisation",
        initialised(lambda self, x: Standardises.initialise(self, x.sub_(x.mean()))),
        "overwrites its input",
    ),
    ("initialisation", NEEDS_INITIALISE, "but slogdet of the map is"),
    ("reload", UNSAVED_START, "y differs after reload"),
    ("unchanged-state", output(late_parameter), "'late' appears or vanishes"),
    (
        "unchanged-state",
        started(lambda self: self.register_buffer("calls", torch.zeros(())), inverse=counting_inverse),
        "changes 'calls'",
    ),
    (
        "unchanged-state",
        variant(
            forward=lambda self, x: (x.mul_(self.scale()).add_(self.offset()), self.positions * self.log_scale[0].sum())
        ),
        "overwrites its input",
    ),
    (
        "unchanged-state",
        output(lambda self, x, y, log_det: (y + 1e-9 * torch.randn_like(y), log_det)),
        "two calls on the same input differ",
    ),
    ("modes", variant(scale=lambda self: Sound.scale(self) * (1 if self.training else 1.1)), "after eval()"),
    ("modes", variant(forward=without_graph), "y carries no gradient"),
    ("masks", LEAKY_MASK, "hides change y"),
    ("masks", LEAKY_MASK, "hides receive a gradient"),
    ("masks", started(set_attribute("log_scale_mask", lambda self: self.log_scale_mask.float())), "not boolean"),
    ("reload", UNSAVED_SCALE, "plain tensor attributes are lost: factor"),
    ("copies", variant(__deepcopy__=lambda self, memo: self), "shares state with the original"),
    (
        "precision",
        started(
            set_attribute("constant", lambda self: torch.zeros(1, dtype=torch.float64)),
            offset=lambda self: Sound.offset(self) + self.constant,
        ),
        "a constant was left behind",
    ),
    ("batches", output(lambda self, x, y, log_det: (y + x.mean(0), log_det)), "y of events one by one differs"),
    (
        "batches",
        variant(forward=lambda self, x: Sound.forward(self, x.view(len(x), -1).view(x.shape))),
        "view size is not compatible",
    ),
    ("affine", variant(inverse=lambda self, y: Sound.inverse(self, y.clamp(-6, 6))), "the inverse of large events"),
    (
        "weight-updates",
        variant(forward=remember_by_input),
        "weights y still uses the old weights",
    ),
    (
        "unused-parameters",
        started(set_attribute("idle", lambda self: nn.Parameter(torch.zeros(7)))),
        "7 of 7 entries of 'idle' receive no gradient",
    ),
    (
        "registered",
        started(
            set_attribute("hidden", lambda self: [nn.Parameter(torch.ones(1))]),
            scale=lambda self: Sound.scale(self) * self.hidden[0].to(self.log_scale),
        ),
        "requires a gradient and is not among the module's parameters",
    ),
    ("wrong-input", variant(check_event=lambda self, x: None), "is accepted: leave check_event to the base class"),
    ("wrong-input", variant(check_event=check_without_names), "names no shape: bad input"),
    ("global-settings", started(lambda self: torch.set_default_dtype(torch.float64)), "construction changes default"),
    ("global-settings", output(stop_recording), "forward changes grad mode: True -> False"),
    (
        "global-settings",
        started(
            lambda self: self.log_scale.register_hook(lambda _: torch.set_num_threads(torch.get_num_threads() + 1))
        ),
        "backward changes threads",
    ),
    ("global-settings", variant(inverse=seed_torch), "inverse seeds the global generator of torch"),
    ("global-settings", started(lambda self: np.random.seed(0)), "seeds the global generator of NumPy"),  # noqa: NPY002
    ("memory", variant(inverse=inverse_by_numpy), "inverse under no_grad takes 1.0 times the memory of its input"),
    ("inverse", variant(inverse=raise_in_inverse), "RuntimeError at"),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("check", CHECKS)
def test_a_correct_layer_passes_each_rule(check, dtype):
    for shape in [(2, 3, 4), (3, 5)]:
        assert run_check(check, LayerCase(Sound, shape, dtype)) == []


@pytest.mark.parametrize(("check", "layer", "message"), FAULTS)
def test_each_rule_reports_its_fault(check, layer, message):
    case = LayerCase(layer, (2, 3, 4))
    if check == "memory":  # which looks at one way of use
        case = replace(case, dtype=torch.float32, training=False)
    assert message in "\n".join(run_check(check, case))


def test_a_cache_in_eval_is_reported_after_weights_were_loaded():
    faults = run_check("weight-updates", LayerCase(variant(inverse=keep_inverse), (2, 3, 4), training=False))
    assert any("after load_state_dict inverse still uses the old weights" in text for text in faults)


def test_a_slow_layer_is_left_out_before_anything_else_is_computed_on_large_events(monkeypatch):
    monkeypatch.setattr("harness.checking.large_checks.SLOWEST_PASS", 0.0)
    monkeypatch.setattr("harness.checking.large_checks._conditioned", None)
    [message] = run_check("large-events", LayerCase(Sound, (2, 3, 4), brief=True))
    assert isinstance(message, Remark) and "a forward pass of 16 events takes" in message


@pytest.mark.parametrize("layer", [Frozen, Reversed, Standardises])
@pytest.mark.parametrize("check", CHECKS)
def test_frozen_parameters_no_parameters_and_initialisation_from_data_are_accepted(check, layer):
    assert [text for text in run_check(check, LayerCase(layer, (2, 3, 4))) if not isinstance(text, Remark)] == []


def test_a_missing_type_hint_is_a_remark():
    (text,) = run_check("options", LayerCase(variant(__init__=untyped_option), (2, 3, 4)))
    assert isinstance(text, Remark) and "'rank' has no type hint" in text


@pytest.mark.parametrize(
    ("claimed", "error", "hint"),
    [
        (1.0, "off by -11 nats, -0.9167 per position and -5.5 per channel", "multiply by n = H * W"),
        (12.0 - 1e-6, "off by -1e-06 nats", ""),
        (7.0, "off by -5 nats", ""),
        (0.0, "off by -12 nats", ""),
        (-12.0, "off by -24 nats", "the sign"),
    ],
)
def test_the_message_has_the_error_of_a_log_det_and_explains_known_ones_only(claimed, error, hint):
    text = explain_log_det(claimed, 12.0, Sound((2, 3, 4)))
    assert error in text and hint in text and bool(hint) == ("ratio" in text)


def test_every_rule_has_a_fault():
    in_training = {"training-step", "updates", "weights-kept"}  # test_training_rules.py
    assert {check for check, _, _ in FAULTS} | in_training == set(CHECKS)
