"""Every registered layer obeys every rule of the interface; a file added to layers/ is tested by this."""

import math
from collections import Counter
from collections.abc import Iterable
from itertools import product
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch

from harness.checking.check_layer import CHECKS, DTYPES, SHAPES, check_layer, construct, run_check
from harness.checking.layer_case import LayerCase
from harness.checking.report import Remark
from layers import LAYERS, layer_options

SERVED = {name: [shape for shape in SHAPES if construct(cls, shape, {}) == (None, [])] for name, cls in LAYERS.items()}
# These rules test saved weights, copies and messages, which do not depend on the shape: they run once per layer.
STATE = ["options", "refusals", "seeding", "reload", "copies", "precision", "wrong-input"]
MAP = [name for name in CHECKS if name not in {*STATE, "large-events"}]
# Above D = 64, where a layer may take another path, and above D = 4096, where the rule forms no matrix.
LARGE = [(3, 16, 16), (2, 512), (5, 32, 32)]
LARGE_OPTIONS = {"sinkhorn": {"over": "positions"}}  # over all entries it builds D x D matrices
EVERY_MODE = list(product(DTYPES, (True, False)))
# Float64 detects the smallest faults, float32 and eval() the remaining ones.
BOTH_MODES = [(torch.float64, True), (torch.float32, False)]


def format_id(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def faults(rules: Iterable[str], case: LayerCase) -> list[str]:
    """Return every fault that the rules find, with the rule and the case."""
    found = [(rule, text) for rule in rules for text in run_check(rule, case)]
    return [f"{rule}, {case}: {text}" for rule, text in found if not isinstance(text, Remark)]


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name in LAYERS for shape in SERVED[name]], ids=format_id)
def test_map_on_each_shape(name: str, shape: tuple[int, ...]):
    for dtype, training in EVERY_MODE if shape == SERVED[name][0] else BOTH_MODES:
        assert faults(MAP, LayerCase(LAYERS[name], shape, dtype, training=training)) == []


@pytest.mark.parametrize("name", LAYERS)
def test_state_and_messages(name: str):
    for dtype, training in EVERY_MODE:
        assert faults(STATE, LayerCase(LAYERS[name], SERVED[name][0], dtype, training=training)) == []


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("shape", LARGE, ids=format_id)
def test_large_events(name: str, shape: tuple[int, ...], build_layer):
    options = LARGE_OPTIONS.get(name, {})
    build_layer(name, shape, **options)
    assert faults(["large-events"], LayerCase(LAYERS[name], shape, options=options, training=False)) == []


@pytest.mark.parametrize("name", LAYERS)
def test_refusals_name_a_size_of_the_shape(name: str):
    assert SERVED[name], f"{name} serves none of {SHAPES}"
    for shape in SHAPES:
        assert construct(LAYERS[name], shape, {})[1] == []


def choices() -> list[tuple[str, str, object]]:
    """Return (layer, option, value) for every value, except the default, of every option with listed values."""
    found = []
    for name, cls in LAYERS.items():
        hints = get_type_hints(cls.__init__)
        for option, parameter in layer_options(cls).items():
            hint = hints[option]
            values = get_args(hint) if get_origin(hint) is Literal else (False, True) if hint is bool else ()
            found += [(name, option, value) for value in values if value != parameter.default]
    return found


@pytest.mark.parametrize(("name", "option", "value"), choices())
@pytest.mark.parametrize("shape", [(4, 4, 4), (3, 5, 4), (4, 8)], ids=format_id)
def test_every_choice_of_an_option(name: str, option: str, value: object, shape: tuple[int, ...], build_layer):
    build_layer(name, shape, **{option: value})
    assert faults([*MAP, *STATE], LayerCase(LAYERS[name], shape, torch.float64, {option: value})) == []


def numbers() -> list[tuple[str, str, int]]:
    """Return (layer, option, value) for small values, except the default, of every integer option."""
    found = []
    for name, cls in LAYERS.items():
        hints = get_type_hints(cls.__init__)
        for option, parameter in layer_options(cls).items():
            if int in (hints[option], *get_args(hints[option])):
                found += [(name, option, value) for value in (1, 2, 3) if value != parameter.default]
    return found


@pytest.mark.parametrize(("name", "option", "value"), numbers())
def test_every_number_of_an_option(name: str, option: str, value: int):
    """Serve each number, or refuse it by name; then try a multiple of D, as the option may be a size.

    The rules run on the first two images and the first sequence that are served.
    """
    cls, served = LAYERS[name], Counter[int]()
    for shape in SHAPES:
        for number in (value, value * math.prod(shape)):
            case = LayerCase(cls, shape, torch.float64, {option: number})
            try:
                case.initial()
            except ValueError as error:
                assert str(number) in str(error), error
            else:
                if served[len(shape)] < {3: 2, 2: 1}[len(shape)]:
                    assert faults(MAP if served else [*MAP, *STATE], case) == []
                served[len(shape)] += 1
                break
    assert served or value != 1, f"no shape was served with {option} = {value}"


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
