"""check-layer refuses layers with a fault, and says what is wrong in each."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from harness.checking.check_layer import CHECKS, check_layer, run_check
from harness.checking.layer_case import LayerCase
from harness.checking.layer_faults import explain_log_det, shown_apart
from harness.checking.report import Remark
from harness.core.errors import UserError
from layers import InvertibleLinear
from layers.kernels import load as kernels

MUTANTS = Path(__file__).parents[1] / "mutants.py"

# Each mutant, the checks that fail on it (no other may), and what the message of the first says.
REFUSED = {
    "ForgottenPositions": ({"log-det"}, "multiply by n = H * W"),
    "FrequenciesOnce": ({"log-det"}, "but slogdet of the map is"),
    "WrongMask": ({"inverse"}, "its matrix is not the inverse of forward's"),
    "TransposedInverse": ({"inverse"}, "it inverts the transpose of W"),
    "SwappedSizes": ({"log-det"}, "but slogdet of the map is"),
    "SharedTwice": ({"log-det"}, "counted twice"),
    "KeptBias": ({"inverse"}, "subtract the bias before solving"),
    "DenseInLayerOrder": ({"dense"}, "row-major order"),
    "LostPermutation": ({"reload"}, "plain tensor attributes are lost: permutation"),
    "LogDetPerSample": ({"log-det-form"}, "one per sample"),
    "DetachedLogDet": ({"gradients"}, "the gradient of log-det by 'weight1' differs"),
    "UnreversedInverse": ({"inverse"}, "are the factors undone in reverse order?"),
    "StaleInverse": ({"weight-updates", "precision"}, "inverse still uses the old weights"),
    "ChunkedLogDet": ({"batches"}, "log-det of events one by one differs"),
    "FlatteredLogDet": ({"batches"}, "log-det of events one by one differs"),
    "ShrunkEvents": ({"batches"}, "y of events one by one differs"),
    "CentredBatch": ({"batches"}, "y of events one by one differs"),
    "HalvedWhenLarge": ({"large-events"}, "a stochastic estimate gives"),
    "WrongWhenLarge": ({"large-events"}, "but slogdet of the map is"),
    "CachedLogDet": ({"weight-updates"}, "after a change of weights the log-det still uses the old weights"),
    "WrongInEval": ({"log-det", "modes"}, "log-det differs by"),
    "AdaptsInEval": ({"unchanged-state", "modes", "weight-updates"}, "forward or inverse changes 'bias'"),
    "FrozenInEval": ({"weight-updates"}, "forward still uses the old weights"),
    "ClampedInverse": ({"scales"}, "inverse is off by"),
    "RepeatedInverse": ({"inverse"}, "forward(inverse(x)) differs from x"),
    "IdleParameters": ({"unused-parameters"}, "10,000 of 10,000 entries of 'idle' receive no gradient"),
    "ParameterInList": ({"registered", "reload"}, "is not among the module's parameters"),
}
CASCADES = {"AdaptsInEval", "FrozenInEval", "RepeatedInverse"}  # other rules fail on them as well
LARGE = {"HalvedWhenLarge", "WrongWhenLarge"}


@pytest.mark.parametrize("mutant", REFUSED)
def test_mutants_of_real_layers_are_refused(mutant):
    checks, message = REFUSED[mutant]
    if mutant == "WrongMask" and kernels.load():
        checks = checks | {"masks"}  # the compiled solve reads the triangle that the wrong mask hides
    large = mutant in LARGE
    report = check_layer(f"mutants.py:{mutant}", folder=MUTANTS.parent, shapes=[(4, 4, 4), (4, 8)], large=large)
    assert not report.ok
    failed = {finding.check for finding in report.findings if finding.severity == "fault"}
    assert failed >= checks if mutant in CASCADES else failed == checks
    assert message in "\n".join(report.lines())


def test_every_mutant_is_tried():
    """None of them is refused for a fault of its parent, which tests/layers/test_every_layer.py checks."""
    source = MUTANTS.read_text()
    assert set(REFUSED) == {line.split()[1].partition("(")[0] for line in source.splitlines() if line[:6] == "class "}


class Sound(InvertibleLinear):
    """y = diag(s) x + b per channel, with weights hidden by a mask; the layer that each class below spoils."""

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


class LogDetOfX(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det + 1e-3 * x.square().mean()


class LogDetOfBatch(Sound):
    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det * len(x)


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
    """The result for the tensor object that was last passed in."""

    last = None

    def forward(self, x):
        if self.last is None or self.last[0] is not x:
            self.last = x, super().forward(x)
        return self.last[1]


class KeepsItsInverse(Sound):
    """In eval() the scale of the first call, also after other weights were loaded."""

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


class Broken(Sound):
    def inverse(self, y):
        raise RuntimeError("no such kernel")


# Each check with the classes that it must refuse, and what it says of each.
FAULTS = [
    ("forward", OnlyY, "forward returns Tensor, not a pair"),
    ("forward", Float32Y, "y is torch.float32"),
    ("conditioning", Singular, "W has condition number"),
    ("affine", NotLinear, "not a linear map"),
    ("dense", NotLinear, "differs from dense() @ x + b"),
    ("log-det-form", LogDetOfX, "log-det changes by"),
    ("log-det-form", LogDetOfBatch, "for a batch of one"),
    ("inverter", OtherInverter, "the first call of inverter()'s result differs"),
    ("gradients", DetachedY, "the gradient of y by 'log_scale' differs"),
    ("options", UntypedOption, "option 'rank' has no type hint"),
    ("options", RequiredOption, "option 'rank' has no default"),
    ("refusals", AnyShape, "shape (4,) is accepted"),
    ("seeding", OwnGenerator, "'log_scale' differs between two layers of one seed"),
    ("unchanged-state", LateParameter, "'late' appears or vanishes"),
    ("unchanged-state", CountsCalls, "changes 'calls'"),
    ("unchanged-state", InPlace, "overwrites its input"),
    ("unchanged-state", Noisy, "two calls on the same input differ"),
    ("modes", OtherInEval, "after eval()"),
    ("modes", NoGraph, "y carries no gradient"),
    ("masks", LeakyMask, "hides change y"),
    ("masks", LeakyMask, "hides receive a gradient"),
    ("masks", FloatMask, "not boolean"),
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
    ("inverse", Broken, "RuntimeError at"),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("check", CHECKS)
def test_a_sound_layer_passes(check, dtype):
    for shape in [(2, 3, 4), (3, 5)]:
        assert run_check(check, LayerCase(Sound, shape, dtype)) == []


@pytest.mark.parametrize(("check", "layer", "message"), FAULTS, ids=lambda value: getattr(value, "__name__", None))
def test_each_check_refuses_its_fault(check, layer, message):
    assert message in "\n".join(run_check(check, LayerCase(layer, (2, 3, 4))))


def test_a_cache_of_eval_shows_when_weights_are_loaded():
    found = run_check("weight-updates", LayerCase(KeepsItsInverse, (2, 3, 4), training=False))
    assert any("after load_state_dict inverse still uses the old weights" in text for text in found)


class Frozen(Sound):
    """A frozen parameter keeps its values, and is not among what must receive a gradient."""

    def __init__(self, shape):
        super().__init__(shape)
        self.sign = nn.Parameter(torch.ones(1), requires_grad=False)

    def scale(self):
        if self.sign != 1:
            raise ValueError("a frozen parameter was changed")
        return super().scale() * self.sign


class Reversed(InvertibleLinear):
    """Without any tensor: read in the dtype of the case."""

    def forward(self, x):
        return x.flip(1), x.new_zeros(())

    def inverse(self, y):
        return y.flip(1)


@pytest.mark.parametrize("layer", [Frozen, Reversed])
@pytest.mark.parametrize("check", CHECKS)
def test_no_false_alarm(check, layer):
    assert [text for text in run_check(check, LayerCase(layer, (2, 3, 4))) if not isinstance(text, Remark)] == []


def test_close_numbers_are_printed_until_they_differ():
    assert shown_apart(4.0361234567, 4.0361239) == ("4.036123", "4.036124")
    assert shown_apart(1.0, 2.0) == ("1", "2")


@pytest.mark.parametrize(
    ("claimed", "hint"), [(1.0, "multiply by n = H * W"), (12.0 - 1e-6, ""), (7.0, ""), (-12.0, "the sign is wrong")]
)
def test_a_hint_is_given_only_where_it_explains_the_error(claimed, hint):
    text = explain_log_det(claimed, 12.0, Sound((1, 3, 4)))
    assert hint in text and bool(hint) == bool(text)


def test_every_check_has_been_seen_to_fail():
    seen = {check for check, _, _ in FAULTS}.union(*(checks for checks, _ in REFUSED.values()))
    assert seen == set(CHECKS)


THEIRS = """
import torch
from torch import nn
from layers import InvertibleLinear, UnsupportedShape

class Scale(InvertibleLinear):
    def __init__(self, shape, size: int = 1):
        super().__init__(shape)
        self.log_scale = nn.Parameter(torch.zeros(self.channels))
    def forward(self, x):
        return (x.transpose(1, -1) * self.log_scale.exp()).transpose(1, -1), self.positions * self.log_scale.sum()
    def inverse(self, y):
        return (y.transpose(1, -1) / self.log_scale.exp()).transpose(1, -1)
"""


@pytest.fixture
def theirs(tmp_path: Path):
    """Write a third party's file with a class Theirs(Scale) of this body; return the spec that names it."""

    def write(*body: str) -> str:
        file = tmp_path / f"theirs_{len(list(tmp_path.iterdir()))}.py"
        file.write_text("\n    ".join([f"{THEIRS}\nclass Theirs(Scale):", *(body or ["pass"])]) + "\n")
        return f"{file}:Theirs"

    return write


WITHOUT_POSITIONS = ("def forward(self, x):", "    return super().forward(x)[0], self.log_scale.sum()")


def test_a_third_party_log_det_without_its_positions(theirs):
    report = check_layer(theirs(*WITHOUT_POSITIONS))
    assert {finding.check for finding in report.findings} == {"log-det", "large-events"}
    assert "ratio 16, the number of positions: multiply by n = H * W" in "\n".join(report.lines())
    assert check_layer(theirs()).ok


def test_the_command_line_refuses_it_with_exit_code_1(theirs):
    spec = theirs(*WITHOUT_POSITIONS)
    done = subprocess.run([sys.executable, "-m", "harness", "check-layer", spec], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert "multiply by n = H * W" in done.stdout and done.stdout.endswith(f"{spec}: 2 failed: log-det, large-events\n")


@pytest.mark.parametrize(
    ("condition", "message", "served", "said"),
    [
        ("shape[0] % 2", 'f"C = {shape[0]} is odd"', 4, "not served  (3, 7): C = 3 is odd"),
        ("True", 'f"not {shape}"', 0, "the layer serves none of the shapes tried"),
        ("shape[0] % 2", '"no"', 4, "the refusal names no size of the shape: 'no'"),
    ],
)
def test_shapes_may_be_refused_but_not_all_of_them(theirs, condition, message, served, said):
    refuses = ("def __init__(self, shape):", "    super().__init__(shape)", f"    if {condition}:")
    report = check_layer(theirs(*refuses, f"        raise UnsupportedShape({message})"))
    assert len(report.served) == served
    assert report.ok == ("served" in said and served > 0)
    assert said in "\n".join(report.lines())


def test_an_exception_is_a_finding_and_aborts_nothing(theirs):
    report = check_layer(theirs("def inverse(self, y):", "    return y.no_such_attribute"), shapes=[(2, 3)])
    failed = {finding.check for finding in report.findings}
    assert {"inverse", "reload"} <= failed and not {"log-det", "dense", "gradients"} & failed
    text = "\n".join(report.lines())
    assert "AttributeError at" in text and "in inverse" in text


def test_a_constructor_that_fails_is_reported_once(theirs):
    report = check_layer(theirs("def __init__(self, shape):", "    raise KeyError('x')"))
    assert {finding.check for finding in report.findings} == {"construction"}
    assert len(report.lines()) < 6


def test_a_wrong_option_is_the_users_error(theirs):
    with pytest.raises(UserError, match="size: 'x' is not int"):
        check_layer(theirs(), {"size": "x"})
    with pytest.raises(UserError, match=r"'sice' is unknown \(did you mean 'size'\?\)"):
        check_layer(theirs(), {"sice": 1})
