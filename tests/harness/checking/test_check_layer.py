"""check-layer refuses faulty variants of real layers and faulty third-party layers, and names each fault."""

import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from harness.checking import check_layer as checks
from harness.checking import large_checks, training_checks
from harness.checking.check_layer import CHECKS, check_layer
from harness.core.errors import UserError
from harness.core.layer_classes import resolve_layer
from layers import LAYERS
from layers.kernels import load as kernels

MUTANTS = Path(__file__).parents[1] / "mutants.py"
ROOT = Path(__file__).parents[3]
SPEC = "./examples/householder.py:Householder"  # of the README

# Name -> (the rules that fail on it, no others; part of the first message).
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
    "StaleInverse": ({"weight-updates", "precision", "updates", "copies"}, "inverse still uses the old weights"),
    "ChunkedLogDet": ({"batches", "training-step"}, "log-det of events one by one differs"),
    "FlatteredLogDet": ({"batches", "training-step"}, "log-det of events one by one differs"),
    "ShrunkEvents": ({"batches", "training-step"}, "y of events one by one differs"),
    "CentredBatch": ({"batches", "training-step"}, "y of events one by one differs"),
    "HalvedWhenLarge": ({"large-events"}, "a stochastic estimate gives"),
    "WrongWhenLarge": ({"large-events"}, "but slogdet of the map is"),
    "CachedLogDet": (
        {"weight-updates", "updates", "copies"},
        "weights log-det still uses the old",
    ),
    "WrongInEval": ({"log-det", "modes", "training-step"}, "log-det differs by"),
    "AdaptsInEval": ({"unchanged-state", "modes", "weight-updates"}, "forward or inverse changes 'bias'"),
    "FrozenInEval": ({"weight-updates"}, "y still uses the old weights"),
    "ClampedInverse": ({"affine"}, "the inverse of far events differs"),
    "RepeatedInverse": ({"inverse"}, "forward(inverse(x)) differs from x"),
    "IdleParameters": ({"unused-parameters"}, "10,000 of 10,000 entries of 'idle' receive no gradient"),
    "AnomalyMode": ({"global-settings"}, "anomaly mode: False -> True"),
    "ParameterInList": ({"registered", "reload"}, "is not among the module's parameters"),
}
CASCADES = {"AdaptsInEval", "FrozenInEval", "RepeatedInverse"}  # other rules may fail on them too
LARGE = {"HalvedWhenLarge", "WrongWhenLarge"}


@pytest.mark.system  # minutes in all; each rule has tests of its own by default
@pytest.mark.parametrize("mutant", REFUSED)
def test_mutants_of_real_layers_are_refused(mutant):
    checks, message = REFUSED[mutant]
    if mutant == "WrongMask" and kernels.load():
        checks = checks | {"masks"}  # the compiled solve reads the triangle hidden by the wrong mask
    large = mutant in LARGE
    report = check_layer(f"mutants.py:{mutant}", folder=MUTANTS.parent, shapes=[(4, 4, 4), (4, 8)], large=large)
    assert not report.ok
    failed = {finding.check for finding in report.findings if finding.severity == "fault"}
    assert failed >= checks if mutant in CASCADES else failed == checks
    assert message in "\n".join(report.lines())


def test_every_mutant_is_tested():
    """Their parents pass every rule: see tests/layers/test_every_layer.py."""
    source = MUTANTS.read_text()
    assert set(REFUSED) == {line.split()[1].partition("(")[0] for line in source.splitlines() if line[:6] == "class "}


THIRD_PARTY = """
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
def write_layer(tmp_path: Path):
    """Return a function that writes a third-party file with a class Faulty(Scale) and returns its spec."""

    def write(*body: str) -> str:
        file = tmp_path / f"layer_{len(list(tmp_path.iterdir()))}.py"
        file.write_text("\n    ".join([f"{THIRD_PARTY}\nclass Faulty(Scale):", *(body or ["pass"])]) + "\n")
        return f"{file}:Faulty"

    return write


WITHOUT_POSITIONS = ("def forward(self, x):", "    return super().forward(x)[0], self.log_scale.sum()")


def test_a_third_party_log_det_of_one_position_is_refused(write_layer):
    report = check_layer(write_layer(*WITHOUT_POSITIONS), shapes=[(2, 4, 4)])
    assert {finding.check for finding in report.findings} == {"log-det", "large-events"}
    assert "; ratio 16, the number of positions: multiply by n = H * W" in "\n".join(report.lines())
    assert check_layer(write_layer(), shapes=[(2, 4, 4)]).ok


@pytest.mark.system
def test_the_command_exits_with_1_for_a_faulty_layer(write_layer):
    spec = write_layer(*WITHOUT_POSITIONS)
    done = subprocess.run([sys.executable, "-m", "harness", "check-layer", spec], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert "multiply by n = H * W" in done.stdout and done.stdout.endswith(f"{spec}: 2 failed: log-det, large-events\n")


def refuses(condition, message='f"not {shape}"'):
    """Return the lines of a layer that refuses shapes under a condition."""
    refusal = f"raise UnsupportedShape({message})"
    return "def __init__(self, shape):", "    super().__init__(shape)", f"    if {condition}: {refusal}"


@pytest.mark.parametrize(
    ("condition", "message", "served", "ok", "line"),
    [
        ("shape[0] % 2", 'f"C = {shape[0]} is odd"', 7, True, "not served  (3, 7): C = 3 is odd"),
        ("True", 'f"not {shape}"', 0, False, "the layer serves none of the shapes tried"),
        ("shape[0] % 2", '"no"', 7, False, "the refusal names no size of the shape: 'no'"),
    ],
)
def test_shapes_may_be_refused_but_not_all(write_layer, condition, message, served, ok, line, monkeypatch):
    monkeypatch.setattr(checks, "run_check", lambda name, case: [])
    report = check_layer(write_layer(*refuses(condition, message)), large=False)
    assert len(report.served) == served
    assert report.ok == ok
    assert line in "\n".join(report.lines())


def cases_tried(monkeypatch, spec, **extent):
    """Return shape -> how often the rule on large events runs there, 0 if briefly, and the report; check no rule."""
    tried = Counter()

    def run_check(name, case):
        if name == "large-events":
            tried[case.shape] += not case.brief
        return []

    monkeypatch.setattr(checks, "run_check", run_check)
    return tried, check_layer(spec, **extent)


@pytest.mark.parametrize(
    ("condition", "instead"),
    [
        ("self.dim > 2000", {"(3, 32, 32)": "(5, 20, 20)", "(3, 64, 64)": "(5, 20, 20)"}),
        ("self.channels % 4", {"(2, 512)": "(4, 256)", "(3, 32, 32)": "(12, 16, 16)", "(3, 64, 64)": "(12, 32, 32)"}),
        ("len(shape) == 3", {"(48, 4, 4)": "(3, 256)", "(3, 32, 32)": "(3, 1024)", "(3, 64, 64)": "(3, 4096)"}),
        ("shape[1:] != (1,)", {str(shape): f"({math.prod(shape)}, 1)" for shape in large_checks.LARGE_SHAPES}),
        ("self.dim > 64", dict.fromkeys(map(str, large_checks.LARGE_SHAPES), "so are all")),
    ],
)
def test_a_large_shape_that_is_refused_is_replaced_by_the_largest_that_is_served(
    write_layer, condition, instead, monkeypatch
):
    tried, report = cases_tried(monkeypatch, write_layer(*refuses(condition)), shapes=[(4, 2), (4, 2, 2), (5, 1)])
    assert report.ok
    for shape, other in instead.items():
        [remark] = [finding for finding in report.remarks if finding.place.startswith(f"shape {shape}, ")]
        assert f"not {shape}; {other}" in remark.message
    served = set(map(str, large_checks.LARGE_SHAPES)) - set(instead)
    assert set(map(str, tried)) == served | {other for other in instead.values() if other != "so are all"}
    assert set(tried.values()) <= {1}, "each once"


@pytest.fixture
def only_large(monkeypatch):
    """Leave out every rule but the one on large events, and forward, which it needs."""
    monkeypatch.setattr(checks, "CHECKS", {name: CHECKS[name] for name in ("forward", "large-events")})


@pytest.mark.usefixtures("only_large")
def test_a_fault_on_the_shape_that_replaces_a_refused_one_is_found(write_layer):
    wrong = "    return super().forward(x)[0], super().forward(x)[1] * (1 + (self.dim > 500))"
    spec = write_layer(*refuses("self.dim > 1000"), "def forward(self, x):", wrong)
    report = check_layer(spec, shapes=[(4, 2)])
    assert {finding.check for finding in report.faults} == {"large-events"}


@pytest.mark.usefixtures("only_large")
@pytest.mark.parametrize(("most", "instead"), [(768, "(2, 256) is checked instead"), (0, "only up to 256 entries are")])
def test_a_slow_layer_is_checked_on_a_smaller_event_and_said_to_be(monkeypatch, most, instead):
    monkeypatch.setattr(checks, "pass_seconds", lambda case: 9.0 if case.dim > most else 0.1)
    report = check_layer("conv1x1", shapes=[(2, 3)])
    assert report.outcome == "ok"
    slow = [finding.message for finding in report.remarks if finding.check == "large-events"]
    assert "a forward pass of 16 events takes 9.0 s" in slow[0] and instead in slow[0]
    assert {*slow[1:]} == {"not tried, as smaller events are slow already"}


@pytest.mark.usefixtures("only_large")
def test_no_larger_event_is_tried_after_one_that_takes_long(monkeypatch):
    monkeypatch.setattr(checks, "SLOWEST_CASE", -1.0)
    report = check_layer("conv1x1", shapes=[(2, 3)])
    assert report.outcome == "ok"
    left = [finding.message for finding in report.remarks if finding.check == "large-events"]
    assert left == ["not tried, as smaller events are slow already"] * (len(large_checks.LARGE_SHAPES) - 1)


@pytest.mark.usefixtures("only_large")
def test_a_large_event_whose_rule_takes_long_is_left_out_and_named(monkeypatch, write_layer):
    monkeypatch.setattr(checks, "LONGEST_CASE", 0.3)
    slow = ["    if self.dim > 1000 and len(x) < 16:", "        while True: torch.linspace(0, 1, 1000).sum()"]
    spec = write_layer("def forward(self, x):", *slow, "    return super().forward(x)")
    report = check_layer(spec, shapes=[(2, 3)])
    assert report.outcome == "ok"
    left = [remark for remark in report.remarks if "of processor time" in remark.message]
    assert len(left) == 1 and "(2, 512)" in left[0].place


@pytest.mark.usefixtures("only_large")
def test_a_fault_on_the_smaller_event_of_a_slow_layer_is_reported(monkeypatch, write_layer):
    monkeypatch.setattr(checks, "pass_seconds", lambda case: 9.0 if case.dim > 768 else 0.1)
    wrong = "y, log_det = super().forward(x); return y, log_det + 0.1 * (self.shape == (2, 256))"
    report = check_layer(write_layer("def forward(self, x):", f"    {wrong}"), shapes=[(2, 3)])
    assert [finding.check for finding in report.faults] == ["large-events"] and "(2, 256)" in report.faults[0].place


@pytest.mark.parametrize(("method", "shape"), [("forward", (4, 4)), ("inverse", (4, 8, 16))])
def test_batches_of_the_suite_are_tried(write_layer, monkeypatch, shape, method):
    for module in (large_checks, training_checks):
        monkeypatch.setattr(module, "drawn_sizes", lambda number: [9, 33, 64, 320][:number])
    result = {"forward": "y, log_det = super().forward(x); return y * factor, log_det"}
    body = result.get(method, "return super().inverse(x) * factor")
    spec = write_layer(f"def {method}(self, x):", "    factor = 2 if len(x) == 50 else 1", f"    {body}")
    assert check_layer(spec, shapes=[(4, 2), shape], large=False).ok
    report = check_layer(spec, shapes=[(4, 2), shape], large=False, batches=[50, 400])
    failed = {finding.check for finding in report.faults}
    in_training = {"training-step"} if method == "forward" else set()
    assert failed == {"batches"} | in_training | ({"large-events"} if len(shape) == 3 else set())


def test_a_layer_for_a_large_shape_alone_is_checked_there_by_every_rule(write_layer, monkeypatch):
    tried = set()
    monkeypatch.setattr(checks, "run_check", lambda name, case: tried.add((name, case.shape)) or [])
    report = check_layer(write_layer(*refuses("shape != (16, 8, 8)")), shapes=[(4, 2), (16, 8, 8)], large=False)
    assert report.ok and report.served == ((16, 8, 8),) and tried == {(name, (16, 8, 8)) for name in CHECKS}


def test_an_exception_is_a_finding_and_other_rules_still_run(write_layer):
    report = check_layer(write_layer("def inverse(self, y):", "    return y.no_such_attribute"), shapes=[(2, 3)])
    failed = {finding.check for finding in report.findings}
    assert {"inverse", "reload"} <= failed and not {"log-det", "dense", "gradients"} & failed
    text = "\n".join(report.lines())
    assert "AttributeError at" in text and "in inverse" in text


def test_a_failing_constructor_is_reported_once(write_layer):
    report = check_layer(write_layer("def __init__(self, shape):", "    raise KeyError('x')"))
    assert {finding.check for finding in report.findings} == {"construction"}
    assert len(report.lines()) < 6


def test_a_wrong_option_raises_a_user_error(write_layer):
    with pytest.raises(UserError, match="size: 'x' is not int"):
        check_layer(write_layer(), {"size": "x"})
    with pytest.raises(UserError, match=r"'sice' is unknown \(did you mean size\?\)"):
        check_layer(write_layer(), {"sice": 1})


def test_an_import_that_changes_a_global_setting_is_named(write_layer):
    spec = write_layer()
    file = Path(spec.rpartition(":")[0])
    file.write_text(file.read_text() + "\ntorch.set_default_dtype(torch.float64)\n")
    events = []
    report = check_layer(spec, shapes=[(2, 3)], large=False, tell=events.append)
    assert [(finding.check, finding.place) for finding in report.faults] == [("global-settings", "import")]
    assert torch.get_default_dtype() == torch.float32
    kinds = [type(event).__name__ for event in events]
    assert kinds.index("Found") < kinds.index("Served"), "it is reported before the time of the check could run out"


DENSE = """
class Dense(InvertibleLinear):
    def __init__(self, shape, wrong_above: int = 10**9):
        super().__init__(shape)
        self.weight = nn.Parameter(torch.eye(self.dim) + 0.1 * torch.randn(self.dim, self.dim) / self.dim)
        self.wrong = self.dim > wrong_above
    def forward(self, x):
        log_det = torch.linalg.slogdet(self.weight).logabsdet
        return (x.flatten(1) @ self.weight.T).reshape(x.shape), log_det * 1.1 if self.wrong else log_det
    def inverse(self, y):
        return torch.linalg.solve(self.weight, y.flatten(1).T).T.reshape(y.shape)
"""


@pytest.fixture
def dense_layer(tmp_path):
    file = tmp_path / "dense.py"
    file.write_text(THIRD_PARTY + DENSE)
    return f"{file}:Dense"


def test_a_layer_that_forms_a_matrix_is_checked_briefly_where_that_is_large(dense_layer, write_layer, monkeypatch):
    monkeypatch.setattr("harness.checking.check_layer.SLOWEST_BUILD", 1e9)
    tried, report = cases_tried(monkeypatch, dense_layer, shapes=[(2, 3)])
    assert dict(tried) == {(48, 4, 4): 1, (2, 512): 0, (3, 32, 32): 0}
    [remark] = report.remarks
    assert remark.place.startswith("shape (3, 64, 64)") and "D x D = 150,994,944 entries" in remark.message
    assert report.outcome == "ok"
    tried, _ = cases_tried(monkeypatch, write_layer(), shapes=[(2, 3)])
    assert tried == dict.fromkeys(large_checks.LARGE_SHAPES, 1)


def test_a_dense_layer_that_takes_long_to_build_is_checked_on_one_large_event(dense_layer, monkeypatch):
    monkeypatch.setattr("harness.checking.check_layer.SLOWEST_BUILD", 0.0)
    tried, report = cases_tried(monkeypatch, dense_layer, shapes=[(2, 3)])
    assert tried == {(48, 4, 4): 1} and len(report.remarks) == 3 and report.outcome == "ok"


def test_a_large_event_of_a_suite_is_checked_in_full(dense_layer, monkeypatch):
    tried, report = cases_tried(monkeypatch, dense_layer, shapes=[(2, 3), (2, 400), (2, 600)], large=False)
    assert tried == {(2, 400): 1, (2, 600): 1} and not report.remarks


@pytest.mark.usefixtures("only_large")
@pytest.mark.parametrize("slowest", [large_checks.SLOWEST_PASS, 1e9])
def test_a_brief_check_finds_a_wrong_log_det_or_says_that_it_was_not_tried(dense_layer, monkeypatch, slowest):
    monkeypatch.setattr(large_checks, "LARGE_SHAPES", ((2, 150), (2, 200)))
    monkeypatch.setattr("harness.checking.check_layer.LARGE_SHAPES", ((2, 150), (2, 200)))
    monkeypatch.setattr("harness.checking.check_layer.FULL_LIMIT", 350)
    monkeypatch.setattr("harness.checking.check_layer.SLOWEST_BUILD", 1e9)
    seconds = large_checks.pass_seconds
    monkeypatch.setattr(large_checks, "pass_seconds", lambda case: seconds(case) + (10.0 if case.dim == 400 else 0.0))
    monkeypatch.setattr(large_checks, "SLOWEST_PASS", slowest)
    report = check_layer(dense_layer, {"wrong_above": 350}, shapes=[(2, 3)])
    if slowest > 10:
        assert {(finding.check, finding.place) for finding in report.faults} == {
            ("large-events", "shape (2, 200), float64, in eval()")
        }
    else:
        assert report.outcome == "ok" and "not tried: a forward pass" in report.remarks[0].message


def test_the_example_passes_every_check():
    """On a shape by each number of reflections, one of a channel, whose direction has no gradient but rounding."""
    for options, shape in (({}, (3, 5, 4)), ({"reflections": 5}, (3, 7)), ({"reflections": 3}, (1, 8))):
        report = check_layer(SPEC, options, ROOT, shapes=[shape], large=False)
        assert report.ok and not report.refused, "\n".join(report.lines())


def test_without_its_scale_the_example_is_orthogonal_and_it_registers_nothing():
    w = resolve_layer(SPEC, ROOT)((3, 2, 2), reflections=2).double().dense()
    torch.testing.assert_close(w @ w.T, torch.eye(12, dtype=torch.float64))
    assert "householder" not in LAYERS


def test_the_plain_module_passes_every_check():
    report = check_layer("examples/reflection.py:Reflection", {"features": "D"}, ROOT, shapes=[(2, 3, 2)], large=False)
    assert report.ok and not report.refused and not report.remarks, "\n".join(report.lines())
