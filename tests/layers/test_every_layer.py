"""Every registered layer obeys every rule of the interface; a file added to layers/ is tested by this."""

import contextlib
import inspect
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch

from harness.audit.training_step import derivative_faults
from harness.checking.check_layer import CHECKS, SHAPES, check_layer, construct, run_check
from harness.checking.layer_case import LayerCase, relative_error
from harness.checking.report import Remark
from harness.timing.operations import perturb
from layers import LAYERS, InvertibleLinear, layer_options
from layers.kernels import load as kernels

SERVED = {name: [shape for shape in SHAPES if construct(cls, shape, {}) == (None, [])] for name, cls in LAYERS.items()}
# These rules test saved weights, copies, messages and effects outside the layer, which do not depend on the shape: they
# run once per layer.
STATE = ["options", "refusals", "seeding", "reload", "copies", "precision", "wrong-input", "global-settings", "memory"]
TRAINING = ["training-step", "updates"]  # on the first image and the first sequence
MAP = [name for name in CHECKS if name not in {*STATE, *TRAINING, "large-events"}]
# These are the rules of MAP whose faults depend on sizes; the others are about batches, modes and kinds of events.
VALUES = ["forward", "conditioning", "dense", "log-det", "log-det-form", "inverse"]
VALUES += ["inverter", "gradients", "masks"]
COARSE = ["conditioning", "dense", "log-det", "inverse", "inverter"]  # those that float32 may fail alone
# Above D = 64, where a layer may take another path, and above D = 4096, where the rule forms no matrix.
LARGE = [(3, 16, 16), (2, 512), (5, 32, 32)]
LARGE_OPTIONS = {"sinkhorn": {"over": "positions"}}  # over all entries it builds D x D matrices
# Float64 detects the smallest faults, float32 and eval() the remaining ones.
BOTH_MODES = [(torch.float64, True), (torch.float32, False)]


def format_id(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def faults(rules: Iterable[str], case: LayerCase) -> list[str]:
    """Return every fault that the rules find, with the rule and the case."""
    reported = [(rule, text) for rule in rules for text in run_check(rule, case)]
    return [f"{rule}, {case}: {text}" for rule, text in reported if not isinstance(text, Remark)]


OUTPUTS = ("y", "log-det", "log_det()", "inverse", "inverter")


def results(layer: InvertibleLinear, x: torch.Tensor, backward_inside: bool = False) -> dict[str, torch.Tensor]:
    """Return all results of a layer and their gradients, computed under autocast if that is on."""
    x = x.clone().requires_grad_()
    y, log_det = layer(x)
    values = {"y": y, "log-det": log_det, "inverse": layer.inverse(x), "inverter": layer.inverter()(x)}
    values["log_det()"] = layer.log_det()
    total = sum((torch.linspace(1, 2, value.numel()).view(value.shape) * value).sum() for value in values.values())
    with contextlib.nullcontext() if backward_inside else torch.autocast("cpu", enabled=False):
        total.backward()
    gradients = {"gradient of x": x.grad, **{name: value.grad for name, value in layer.named_parameters()}}
    return {what: value.detach() for what, value in (values | gradients).items() if value is not None}


class Backwards(torch.nn.Module):
    """The inverse of a layer, as `inverse` and as `inverter` compute it."""

    def __init__(self, layer: InvertibleLinear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer.inverse(y), self.layer.inverter()(y)


def gradients_of_the_inverse(case: LayerCase) -> Iterator[str]:
    """Check the gradients of `inverse` ("y") and `inverter` ("log-det"), by events and parameters."""
    if case.dtype == torch.float64:
        for fault in derivative_faults(Backwards(case.build()), case.events(2)):
            yield f"of the inverse as y and the inverter as log-det: {fault}"


def kept_weights(case: LayerCase) -> Iterator[str]:
    """Check that the result of a layer's `inverter` inverts with the weights that it was made with."""
    layer, x = case.build(), case.events()
    if inspect.unwrap(type(layer).inverter) is inspect.unwrap(InvertibleLinear.inverter):
        return
    y, invert = layer(x)[0].detach(), layer.inverter()
    perturb(layer, 0.3, torch.Generator().manual_seed(1))
    error = relative_error(invert(y), x)
    if not error <= case.tolerance():
        yield f"an inverter differs by {error:.2g} (relative) after the layer's weights have changed"


def empty_batches(case: LayerCase) -> Iterator[str]:
    """Check that an empty batch has empty results and gradients, and the log-det of any other."""
    empty, one = (results(case.build(), case.events(size)) for size in (0, 1))
    for what in ("y", "inverse", "inverter", "gradient of x"):
        if empty[what].shape != (0, *case.shape):
            yield f"{what} of an empty batch has shape {tuple(empty[what].shape)}"
    for what in ("log-det", "log_det()"):
        if not torch.equal(empty[what], one[what]):
            yield f"{what} of an empty batch is {empty[what]}, of one event {one[what]}"


def autocast(case: LayerCase) -> Iterator[str]:
    """Check that results under autocast are those in float32; a backward pass under it rounds gradients, as torch's."""
    x = case.events().bfloat16()
    expected = results(case.build(), x.float())
    for events, dtype, backward_inside in [(x, torch.bfloat16, True), (x.float(), torch.float16, False)]:
        with torch.autocast("cpu", dtype):
            outcome = results(case.build(), events, backward_inside)
        for what, value in expected.items():
            exact = what in OUTPUTS or not backward_inside
            if exact and outcome[what].dtype != torch.float32:
                yield f"{what} under autocast to {dtype} is {outcome[what].dtype}"
            error = (outcome[what] - value).abs().max()
            if not error <= (case.tolerance() * (1 + value.abs().max()) if exact else math.inf):
                yield f"{what} under autocast to {dtype} differs by {error:.2g} from that in float32"


def coarse_weights(case: LayerCase, dtype: torch.dtype) -> Iterator[str]:
    """Check that a layer moved to a coarse precision refuses to compute, or returns its log-det in float32."""
    layer, x = case.build().to(dtype), case.events()
    calls: dict[str, Callable[[], object]] = {
        "forward": lambda: layer(x.to(dtype)),
        "forward of float32": lambda: layer(x),
        "log_det()": lambda: layer.log_det(),
        "inverse": lambda: layer.inverse(x.to(dtype)),
        "inverter": lambda: layer.inverter()(x.to(dtype)),
    }
    for what, call in calls.items():
        try:
            outcome = call()
        except ValueError as error:
            if "is too coarse for a log-determinant; keep" not in str(error):
                yield f"{what} in {dtype} raises {error}"
        else:
            log_det = outcome[1] if isinstance(outcome, tuple) else outcome
            if not isinstance(log_det, torch.Tensor) or log_det.dtype != torch.float32:
                yield f"{what} in {dtype} is accepted"


def pickled(case: LayerCase) -> Iterator[str]:
    """Check that a layer saved whole, and loaded, gives the same results."""
    file, layer = io.BytesIO(), case.build()
    torch.save(layer, file)
    file.seek(0)
    expected, loaded = (results(each, case.events()) for each in (layer, torch.load(file, weights_only=False)))
    for what, value in expected.items():
        if not torch.equal(loaded[what], value):
            yield f"{what} differs after torch.save and torch.load of the layer"


def firsts(name: str) -> list[tuple[int, ...]]:
    """Return the first image and the first sequence that a layer serves, of several positions and D <= 64."""
    small = [shape for shape in SERVED[name] if math.prod(shape[1:]) > 1 and math.prod(shape) <= 64]
    return [*{len(shape): shape for shape in reversed(small or SERVED[name])}.values()]


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name in LAYERS for shape in SERVED[name]], ids=format_id)
def test_map_on_each_shape(name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch):
    first = shape in firsts(name)
    for (dtype, training), rules in zip(BOTH_MODES, (VALUES, COARSE), strict=True):
        case = LayerCase(LAYERS[name], shape, dtype, training=training)
        assert faults(MAP if first else rules, case) == []
        assert [*gradients_of_the_inverse(case), *kept_weights(case)] == []
    case = LayerCase(LAYERS[name], shape, torch.float32)
    assert [*empty_batches(case), *(autocast(case) if first else ())] == []
    if first:
        monkeypatch.setattr(kernels, "serve", lambda *tensors: False)
        assert [*empty_batches(case), *autocast(case)] == []


# Options with values that no other test of this file tries, such as lists, on shapes that suit them; and shapes that
# take another path: fewer channels than a rank, a kernel larger than the event, several blocks of a triangular solve.
BLOCKS = [
    {"shared": True, "initialisation": "rotation"},
    {"bi_direction": True, "flatten": "channels_last"},
    {"order": "descending", "levels": 2, "flatten": "pixels"},
    {"levels": [1, 2, 1]},
    {"levels": 9, "capped": True, "shared": True, "flatten": "channels_last"},
    {"levels": 3, "full_depth_at": 96, "initialisation": "rotation"},
    {"partition": [24, 12, 12], "levels": [[1, 1], [], [1]]},
    {"partition": [48, 24, 24], "levels": 2, "full_depth_at": 96, "shared": True},
]
FURTHER: list[tuple[str, tuple[int, ...], dict[str, object]]] = [
    ("woodbury", (4, 12), {"rank_channels": 1, "rank_space": 2}),
    ("woodbury", (12, 3, 5), {"rank_channels": 3, "rank_space": 4}),
    ("woodbury", (1, 7), {"rank_channels": 8, "rank_space": 4}),
    ("woodbury", (3, 1, 1), {"rank_channels": 2, "rank_space": 3}),
    ("woodbury", (2, 3), {"rank_channels": 5, "rank_space": 7}),
    ("woodbury", (5, 2, 9), {"rank_channels": 2, "rank_space": 3, "memory_efficient": True}),
    ("woodbury", (1, 7, 3), {"rank_channels": 2, "rank_space": 1, "memory_efficient": True}),
    ("woodbury", (2, 1, 4), {"memory_efficient": True}),
    ("butterfly", (3, 4, 4), {"levels": 4, "shared": True, "initialisation": "rotation"}),
    ("butterfly", (3, 2, 4), {"levels": 3, "flatten": "channels_last", "order": "descending", "shared": True}),
    ("butterfly", (1, 28), {"partition": [16, 8, 4], "levels": [4, 2, 0], "shared": True}),
    ("butterfly", (2, 3, 4), {"partition": [8, 16], "levels": [[3, 1], [2, 2, 4]], "flatten": "channels_last"}),
    ("butterfly", (4, 6), {"levels": [3, 1, 1]}),
    ("butterfly", (1, 1, 1), {}),
    ("butterfly", (3, 5), {"levels": 0, "shared": True}),
    ("butterfly", (1, 2), {}),
    *(("butterfly", (6, 2, 4), {**options, "block_size": size}) for options in BLOCKS for size in (1, 3)),
    ("butterfly", (3, 2, 5), {"bi_direction": True, "order": "descending"}),
    ("butterfly", (3, 2, 5), {"shared": True, "initialisation": "rotation", "bi_direction": True}),
    ("butterfly", (3, 2, 5), {"flatten": "pixels", "initialisation": "rotation"}),
    ("butterfly", (3, 4, 4), {"block_size": 2, "shared": True, "bi_direction": True, "flatten": "channels_last"}),
    ("butterfly", (2, 47), {"block_size": 2}),
    ("periodic", (1, 1, 1), {"kernel_size": 1}),
    ("periodic", (2, 4, 4), {"kernel_size": 8}),
    ("periodic", (2, 9, 1), {"kernel_size": 4}),
    ("periodic", (20, 2, 3), {"kernel_size": 3}),
    ("periodic", (3, 1), {"kernel_size": 2}),
    ("periodic", (4, 61), {"kernel_size": 5}),
    ("periodic", (1, 4), {"kernel_size": 18}),
    ("emerging", (1, 1, 1), {"kernel_size": 3}),
    ("emerging", (3, 5, 4), {"kernel_size": 9}),
    ("emerging", (2, 1, 9), {"kernel_size": 3}),
    ("emerging", (2, 9, 1), {"kernel_size": 9}),
    ("emerging", (40, 2, 7), {"kernel_size": 3}),
    ("emerging", (4, 60), {"kernel_size": 9}),
]


@pytest.mark.parametrize(("name", "shape", "options"), FURTHER, ids=format_id)
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
def test_further_options(name, shape, options, compiled, monkeypatch: pytest.MonkeyPatch):
    if not compiled:
        monkeypatch.setattr(kernels, "serve", lambda *tensors: False)
    case = LayerCase(LAYERS[name], shape, torch.float64, options)
    assert [*faults(VALUES, case), *gradients_of_the_inverse(case), *kept_weights(case)] == []


@pytest.mark.parametrize("name", LAYERS)
def test_training_state_and_messages(name: str):
    for dtype, training in BOTH_MODES:
        case = LayerCase(LAYERS[name], SERVED[name][0], dtype, training=training)
        assert [*faults(STATE, case), *pickled(case)] == []
    case = LayerCase(LAYERS[name], SERVED[name][0], torch.float32)
    assert [*coarse_weights(case, torch.bfloat16), *coarse_weights(case, torch.float16)] == []
    for shape in firsts(name):
        assert faults(TRAINING, LayerCase(LAYERS[name], shape, torch.float32)) == []
    assert SERVED[name], f"{name} serves none of {SHAPES}"
    for shape in SHAPES:
        assert construct(LAYERS[name], shape, {})[1] == []


@pytest.mark.system
@pytest.mark.parametrize(
    ("shape", "name"),
    [(shape, name) for shape in LARGE for name in LAYERS if len(shape) in map(len, SERVED[name])],  # images, sequences
    ids=format_id,
)
def test_large_events(name: str, shape: tuple[int, ...], build_layer):
    options = LARGE_OPTIONS.get(name, {})
    build_layer(name, shape, **options)
    assert faults(["large-events"], LayerCase(LAYERS[name], shape, options=options, training=False)) == []


OPTIONS = [
    (name, option, get_type_hints(cls.__init__)[option], parameter.default)
    for name, cls in LAYERS.items()
    for option, parameter in layer_options(cls).items()
]
# (layer, option, value) for every value, except the default, of every option with listed values.
CHOICES = [
    (name, option, value)
    for name, option, hint, default in OPTIONS
    for value in (get_args(hint) if get_origin(hint) is Literal else (False, True) if hint is bool else ())
    if value != default
]
# The same for small values of every integer option.
NUMBERS = [
    (name, option, value)
    for name, option, hint, default in OPTIONS
    for value in ((1, 2, 3) if int in (hint, *get_args(hint)) else ())
    if value != default
]


@pytest.mark.parametrize(("name", "option", "value"), CHOICES)
@pytest.mark.parametrize("shape", [(3, 5, 4), (4, 8)], ids=format_id)
def test_every_choice_of_an_option(name: str, option: str, value: object, shape: tuple[int, ...], build_layer):
    build_layer(name, shape, **{option: value})
    rules = [*MAP, *STATE, *TRAINING] if shape == (4, 8) else VALUES
    assert faults(rules, LayerCase(LAYERS[name], shape, torch.float64, {option: value})) == []


@pytest.mark.parametrize(("name", "option", "value"), NUMBERS)
def test_every_number_of_an_option(name: str, option: str, value: int):
    """Serve each number, or refuse it by name; then try a multiple of D, as the option may be a size.

    The rules run on the first two images and the first sequence that are served.
    """
    cls, served = LAYERS[name], Counter[int]()
    for shape in SERVED[name]:
        for number in (value, value * math.prod(shape)):
            case = LayerCase(cls, shape, torch.float64, {option: number})
            try:
                case.initial()
            except ValueError as error:
                assert str(number) in str(error), error
            else:
                if served[len(shape)] < {3: 2, 2: 1}[len(shape)]:
                    assert faults(VALUES if served else [*VALUES, *STATE], case) == []
                served[len(shape)] += 1
                break
    assert served or value != 1, f"no shape was served with {option} = {value}"


@pytest.mark.parametrize(("name", "option", "hint"), [case[:3] for case in OPTIONS])
def test_wrong_values_of_options_are_named(name: str, option: str, hint: object):
    numbers = [-1, 1.5, True, "3"] if int in (hint, *get_args(hint)) else []
    for value in numbers or ["another"] * (get_origin(hint) is Literal):
        with pytest.raises(ValueError, match=re.escape(option)) as caught:
            LAYERS[name](SERVED[name][0], **{option: value})
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("shape", [(4, 8, 8), (4, 16)], ids=format_id)
def test_every_counted_parameter_reaches_the_map(name: str, shape: tuple[int, ...], build_layer):
    """Entries without a gradient must be masked, so that they do not count as free parameters."""
    build_layer(name, shape)
    case = LayerCase(LAYERS[name], shape)
    layer, x = case.build(), case.events().requires_grad_()
    y, log_det = layer(x)
    # Not the sum of squares, which an orthogonal map does not change.
    ((y * torch.linspace(1, 2, y.numel(), dtype=y.dtype).view(y.shape)).square().sum() + log_det).backward()
    for parameter_name, parameter in layer.named_parameters():
        mask = dict(layer.named_buffers()).get(f"{parameter_name}_mask", torch.ones((), dtype=torch.bool))
        reached = parameter.grad != 0
        assert torch.equal(reached, mask.expand_as(reached)), parameter_name


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", LAYERS)
def test_layer_on_cuda(name: str):
    report = check_layer(name, device="cuda")
    assert report.ok, "\n".join(report.lines())
