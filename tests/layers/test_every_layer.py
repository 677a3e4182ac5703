"""Every registered layer keeps to every rule of the interface: a file dropped into layers/ is tested by this."""

import math
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
# What a layer keeps, and how it is copied, does not depend on its shape: those rules run once per layer.
STATE = {"options", "refusals", "seeding", "reload", "copies", "precision", "wrong-input"}
MAP = [name for name in CHECKS if name not in STATE | {"large-events"}]


def name_of(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def faults(rules: Iterable[str], case: LayerCase) -> list[str]:
    """Return what the rules find, each fault with the rule and the case."""
    found = [(rule, text) for rule in rules for text in run_check(rule, case)]
    return [f"{rule}, {case}: {text}" for rule, text in found if not isinstance(text, Remark)]


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name in LAYERS for shape in SERVED[name]], ids=name_of)
def test_the_map(name: str, shape: tuple[int, ...]):
    for dtype, training in product(DTYPES, (True, False)):
        assert faults(MAP, LayerCase(LAYERS[name], shape, dtype, training=training)) == []


@pytest.mark.parametrize("name", LAYERS)
def test_check_layer(name: str):
    """Every rule on one shape, the rules of state and of large events among them."""
    report = check_layer(name, shapes=SERVED[name][:1])
    assert report.ok, "\n".join(report.lines())


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_not_served_is_refused_by_name(name: str):
    assert SERVED[name], f"{name} serves none of {SHAPES}"
    for shape in SHAPES:
        assert construct(LAYERS[name], shape, {})[1] == []


def choices() -> list[tuple[str, str, object]]:
    """Every value, other than the default, of every option that lists its values."""
    found = []
    for name, cls in LAYERS.items():
        hints = get_type_hints(cls.__init__)
        for option, parameter in layer_options(cls).items():
            hint = hints[option]
            values = get_args(hint) if get_origin(hint) is Literal else (False, True) if hint is bool else ()
            found += [(name, option, value) for value in values if value != parameter.default]
    return found


@pytest.mark.parametrize(("name", "option", "value"), choices())
@pytest.mark.parametrize("shape", [(4, 4, 4), (3, 5, 4), (4, 8)], ids=name_of)
def test_every_choice_of_an_option(name: str, option: str, value: object, shape: tuple[int, ...], build_layer):
    build_layer(name, shape, **{option: value})
    assert faults([*MAP, *sorted(STATE)], LayerCase(LAYERS[name], shape, torch.float64, {option: value})) == []


def numbers() -> list[tuple[str, str, int]]:
    """Small values, other than the default, of every option that may be a whole number."""
    found = []
    for name, cls in LAYERS.items():
        hints = get_type_hints(cls.__init__)
        for option, parameter in layer_options(cls).items():
            if int in (hints[option], *get_args(hints[option])):
                found += [(name, option, value) for value in (1, 2, 3) if value != parameter.default]
    return found


@pytest.mark.parametrize(("name", "option", "value"), numbers())
def test_every_number_of_an_option(name: str, option: str, value: int):
    """Each number is served, or refused by its name; then a multiple of D is tried, as the option may be a size."""
    cls, served = LAYERS[name], False
    for shape in SHAPES:
        for number in (value, value * math.prod(shape)):
            case = LayerCase(cls, shape, torch.float64, {option: number})
            try:
                case.initial()
            except ValueError as error:
                assert str(number) in str(error), error
            else:
                assert faults(MAP if served else CHECKS, case) == []
                served = True
                break
    assert served or value != 1, f"no shape was served with {option} = {value}"


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("shape", [(4, 8, 8), (4, 16)], ids=name_of)
def test_every_counted_parameter_reaches_the_map(name: str, shape: tuple[int, ...], build_layer):
    """Masks hide all entries that do not count, so that parameters without masked entries are counted right."""
    build_layer(name, shape)
    case = LayerCase(LAYERS[name], shape)
    layer, x = case.build(), case.events().requires_grad_()
    y, log_det = layer(x)
    # Not the sum of squares, which an orthogonal map leaves as it is.
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
