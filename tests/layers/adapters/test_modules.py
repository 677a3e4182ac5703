"""Plain modules with forward(x) -> (y, log_det) and inverse(y) are layers, and what is wrong with others is said."""

import pytest
import torch
from torch import nn
from variants import output, variant

from flows import ActNorm
from harness.checking.check_layer import construct, run_check
from harness.checking.layer_case import LayerCase
from layers import UnsupportedShape, layer_options
from layers.adapters import adapt
from layers.conv1x1 import Conv1x1

IMAGE, SEQUENCE, VECTOR = (2, 2, 3), (3, 5), (5, 1)
RULES = [
    "forward", "log-det", "reverse-log-det", "log-det-form", "inverse", "options", "refusals", "initialisation",
    "reload", "wrong-input",
]  # fmt: skip


class Gain(nn.Module):
    """y = exp(s) x on events of a shape that the constructor takes; classes below differ in what they return."""

    def __init__(self, shape):
        super().__init__()
        self.s = nn.Parameter(torch.zeros(shape))

    def forward(self, x):
        return self.s.exp() * x, self.s.sum()

    def inverse(self, y):
        return (-self.s).exp() * y


class Vectors(Gain):
    """Take vectors alone, with a log-det for each event."""

    def __init__(self, features, *, start: float = 0.1):
        super().__init__((features,))
        nn.init.constant_(self.s, start)

    def forward(self, x):
        batch, _ = x.shape
        return self.s.exp() * x, self.s.sum().expand(batch)


class Names(Gain):
    """Have options with the names that the adapter itself uses."""

    def __init__(self, event_shape, options=0, make=0, library=0, event=0, result=0, kept=0, _self_=0):
        super().__init__(event_shape)
        self.shape, self.library = options, make


class Channels(nn.Module):
    """Mix the channels of images and sequences; the inverse returns its log-det too."""

    def __init__(self, channels):
        super().__init__()
        self.w = nn.Parameter(torch.eye(channels) + 0.1 * torch.randn(channels, channels))

    def log_det(self, x):
        return x[0, 0].numel() * torch.linalg.slogdet(self.w)[1]

    def forward(self, x):
        return torch.einsum("ij, nj... -> ni...", self.w, x), self.log_det(x)

    def inverse(self, y):
        return torch.einsum("ij, nj... -> ni...", torch.linalg.inv(self.w), y), -self.log_det(y)


class Flip(nn.Module):
    def forward(self, x):
        return x.flip(1), 0

    def inverse(self, y):
        return y.flip(1)


class WrongReverse(Channels):
    def inverse(self, y):
        x, log_det = super().inverse(y)
        return x, -log_det


# A log-det for each event, which depends on the event.
OF_EVENTS = output(Gain, lambda self, x, y, log_det: (y, log_det + 0.1 * x.flatten(1).sum(1)))


class Standardises(Gain):
    def initialise(self, x):
        self.s.copy_(-x.std(0).log())


@pytest.mark.parametrize(
    ("module", "options", "seen"),
    [
        (Gain, {}, {IMAGE: IMAGE, SEQUENCE: SEQUENCE, VECTOR: VECTOR}),
        (Vectors, {"features": "D"}, {IMAGE: (12,), SEQUENCE: (15,), VECTOR: (5,)}),
        (Vectors, {"features": "H * 6", "start": 0.2}, {IMAGE: (12,), SEQUENCE: None}),
        (Names, {"event_shape": "D", "options": "C"}, {IMAGE: (12,)}),
        (Channels, {"channels": "C"}, {IMAGE: IMAGE, SEQUENCE: SEQUENCE}),
        (Flip, {}, {IMAGE: IMAGE, VECTOR: VECTOR}),
        (Standardises, {}, {IMAGE: IMAGE}),
        (ActNorm, {"channels": "C"}, {IMAGE: IMAGE, SEQUENCE: SEQUENCE}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_modules_keep_the_rules_on_the_events_that_they_see(module, options, seen):
    cls = adapt(module)
    for shape, event in seen.items():
        if event is None:
            with pytest.raises(UnsupportedShape, match=r"\(3, 5\) have no H"):
                cls(shape, **options)
            continue
        layer = cls(shape, **options)
        vector = "" if event == shape else ", on the event as a vector"
        assert (layer.event, layer.remark) == (event, f"adapted from a torch.nn.Module{vector}")
        for rule in RULES:
            assert run_check(rule, LayerCase(cls, shape, options=options)) == [], rule


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (output(Gain, lambda self, x, y, log_det: y), "forward returns Tensor, not a pair (y, log_det)"),
        (
            output(Gain, lambda self, x, y, log_det: (y, log_det.expand(len(x), 1))),
            "forward returns a log-det of shape (11, 1) for 11 events: its shape must be (), or (N,)",
        ),
        (output(Gain, lambda self, x, y, log_det: (x, "0")), "forward returns str as its log-det"),
    ],
)
def test_what_returns_something_else_is_a_fault_and_no_unsupported_shape(module, message):
    refusal, faults = construct(adapt(module), IMAGE, {})
    assert refusal is None and message in faults[0]


@pytest.mark.parametrize(
    ("module", "options", "rule", "message"),
    [
        (OF_EVENTS, {}, "log-det-form", "between events: that of a linear map is one constant"),
        (variant(Gain, inverse=lambda self, y: None), {}, "inverse", "inverse returns NoneType, not x"),
        (WrongReverse, {"channels": "C"}, "reverse-log-det", "the sign is wrong"),
    ],
)
def test_faults_of_modules_are_found(module, options, rule, message):
    assert message in "\n".join(run_check(rule, LayerCase(adapt(module), IMAGE, options=options)))


def test_other_conventions_come_first():
    from nflows.transforms import LULinear

    class Theirs(LULinear):
        pass

    assert type(adapt(Theirs).library).__name__ == "NFlows"
    for other in (Conv1x1, nn.Linear, nn.Module, len, Gain((2,))):
        assert adapt(other) is None
    assert list(layer_options(adapt(Gain))) == [] and list(layer_options(adapt(Vectors))) == ["features", "start"]


def test_initialise_reaches_the_module_in_its_own_event_shape():
    class Both(Vectors):
        def initialise(self, x):
            self.s.copy_(-x.std(0).log())

    layer, x = adapt(Both)(IMAGE, features="D"), torch.randn(50, *IMAGE)
    with torch.no_grad():
        layer.initialise(x)
    torch.testing.assert_close(layer(x)[0].std(0), torch.ones(IMAGE))
    with pytest.raises(ValueError, match="not a batch of events"):
        layer.initialise(x.flatten(1))
