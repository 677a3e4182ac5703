"""Names, files and options of layers, and the messages for wrong ones."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
import torch
from pydantic import Field

from harness.core.errors import UserError
from harness.core.layer_classes import check_options, option_errors, resolve_layer
from layers import LAYERS, InvertibleLinear

SOUND = """
from layers import InvertibleLinear

class Negation(InvertibleLinear):
    def forward(self, x):
        return -x, x.new_zeros(())
    def inverse(self, y):
        return -y

class Half(InvertibleLinear):
    def forward(self, x):
        return x, x.new_zeros(())

class Other:
    pass

import torch

class OneWay(torch.nn.Module):
    def forward(self, x):
        return x, 0

def flip(x):
    return x.flip(1), 0

flipped = OneWay()
"""


@pytest.fixture(autouse=True)
def registry():
    """Restore the registry after files have registered layers."""
    before = dict(LAYERS)
    yield
    LAYERS.clear()
    LAYERS.update(before)


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    file = tmp_path / "sound.py"
    file.write_text(SOUND)
    return file


def refusal(spec: str, folder: Path | None = None) -> str:
    with pytest.raises(UserError) as caught:
        resolve_layer(spec, folder)
    return str(caught.value)


def test_a_file_is_found_beside_the_suite_then_in_the_working_directory(sound, tmp_path, monkeypatch):
    cls = resolve_layer("sound.py:Negation", folder=tmp_path)
    assert cls.__name__ == "Negation"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_layer("./sound.py:Negation", folder=elsewhere) is cls
    assert resolve_layer(f"{sound}:Negation") is cls


def test_a_registered_layer_named_by_its_file_is_the_same_class():
    for name, cls in LAYERS.items():
        file = Path(__file__).parents[3] / f"{cls.__module__.replace('.', '/')}.py"
        assert resolve_layer(f"{file}:{cls.__name__}") is resolve_layer(name) is cls, name


def test_a_file_may_register_a_name(tmp_path):
    (tmp_path / "named.py").write_text(SOUND.replace("Negation(InvertibleLinear)", 'N(InvertibleLinear, name="minus")'))
    assert resolve_layer("named.py:N", tmp_path) is LAYERS["minus"] is resolve_layer("minus")


def test_a_taken_name_is_refused_and_registers_nothing(tmp_path):
    taken = next(iter(LAYERS))
    source = 'class A(InvertibleLinear, name="fine"): pass\nclass B(InvertibleLinear, name="{}"): pass\n'
    (tmp_path / "taken.py").write_text("from layers import InvertibleLinear\n" + source.format(taken))
    message = refusal("taken.py:B", tmp_path)
    assert f"layer name {taken!r} is taken" in message and "taken.py:3" in message
    assert "fine" not in LAYERS


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("sound.py:Negatoin", ["no class 'Negatoin'", "did you mean Negation?", "the layers in it are Negation"]),
        ("sound.py:Half", ["does not implement inverse"]),
        ("sound.py:InvertibleLinear", ["does not implement forward and inverse"]),
        ("sound.py:Other", ["not a subclass of layers.InvertibleLinear", "the layers in it are Negation"]),
        ("sound.py:Other", ["nor a torch.nn.Module with forward(x)", "it derives from no nn.Module"]),
        ("sound.py:OneWay", ["nor a torch.nn.Module", "(it has no inverse(y))"]),
        ("sound.py:flip", ["nor a torch.nn.Module", "it is no class but of type function"]),
        ("sound.py:flipped", ["nor a torch.nn.Module", "it is no class but of type OneWay"]),
        ("torch.nn:Module", ["it has no forward(x) and no inverse(y)"]),
        ("sound.py", ["FILE.py:CLASS"]),
        ("missing.py:Negation", ["there is no such file", "missing.py"]),
        ("no_such_package.layer:Layer", ["the import fails: ModuleNotFoundError: No module named 'no_such_package'"]),
        ("layers.no_such_file:Layer", ["No module named 'layers.no_such_file'"]),
        ("layers:UnsupportedShape", ["not a subclass"]),
    ],
)
def test_refusals_name_the_value_and_an_alternative(sound, tmp_path, spec, parts):
    message = refusal(spec, tmp_path)
    for part in parts:
        assert part in message
    assert "\n" not in message


def test_an_unknown_name_suggests_the_nearest():
    message = refusal("conv1x")
    assert "did you mean conv1x1?" in message
    assert all(name in message for name in LAYERS)


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("import torch\n\nraise RuntimeError('no licence')\n", ["broken.py:3", "RuntimeError: no licence"]),
        ("x = 1\ndef broken(:\n", ["broken.py:2", "SyntaxError"]),
        ("import no_such_package\n", ["broken.py:1", "No module named 'no_such_package'"]),
        ("import sys\nsys.exit(5)\n", ["broken.py:2", "SystemExit: 5"]),
        ("\0binary", ["broken", "null bytes"]),
    ],
)
@pytest.mark.parametrize("form", ["broken.py:Layer", "broken:Layer"])
def test_a_file_that_fails_to_import_is_named_with_its_line(tmp_path, monkeypatch, source, parts, form):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken.py").write_text(source)
    message = refusal(form, tmp_path)
    for part in parts:
        assert part in message
    assert "Traceback" not in message
    assert refusal(form, tmp_path) == message  # the second attempt must not find a half-imported module


class Optioned(InvertibleLinear):
    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        rank: int = 8,
        scale: float = 1.0,
        flag: bool = False,
        start: Literal["identity", "rotation"] = "identity",
        levels: int | list[int] | None = None,
        pair: tuple[int, int] = (1, 2),
        kernel: Annotated[int, Field(ge=1)] = 3,
        anything=None,
    ) -> None:
        super().__init__(shape)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rank": 3, "scale": 2, "flag": True, "start": "rotation", "levels": None, "pair": [3, 4], "anything": "x"},
        {"levels": 4},
        {"levels": [1, 2]},
        {"levels": (1, 2), "pair": (1, 2)},
    ],
)
def test_options_that_fit_their_hints(options):
    assert option_errors(Optioned, options) == []
    assert check_options(Optioned, options) == options


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"rank": "3"}, ["rank: '3' is not int", "the default is 8"]),
        ({"rank": 3.0}, ["rank: 3.0 is not int"]),
        ({"rank": True}, ["rank: True is not int"]),
        ({"flag": 1}, ["flag: 1 is not bool"]),
        ({"start": "rotate"}, ["one of 'identity', 'rotation'", "did you mean rotation?"]),
        ({"levels": (1, "2")}, ["levels: [1, '2'] is not int | list[int] | None"]),
        ({"pair": [1, 2, 3]}, ["pair: [1, 2, 3] is not tuple[int, int]"]),
        ({"kernel": 0}, ["kernel: 0 is not int", "greater than or equal to 1"]),
        ({"rnk": 3}, ["'rnk' is unknown (did you mean rank?)", "the options are rank, scale"]),
        ({"scale": object}, ["scale:", "cannot be checked against its type hint, float"]),
    ],
)
def test_options_that_do_not_fit(options, parts):
    [(name, message)] = option_errors(Optioned, options)
    assert name == next(iter(options))
    for part in parts:
        assert part in message


def test_an_option_without_default_must_be_given():
    class Needy(InvertibleLinear):
        def __init__(self, shape: tuple[int, ...], rank: int) -> None:
            super().__init__(shape)

    assert option_errors(Needy, {}) == [("rank", "'rank' has no default: give it a value")]
    assert option_errors(Needy, {"rank": 2}) == []


@pytest.mark.parametrize(("text", "fault"), [("randn(D, D", "is not an expression"), ("randn(D, E)", "'E' is unknown")])
def test_an_expression_for_a_layer_of_another_library_is_checked(text, fault):
    cls = resolve_layer("zuko.transforms:RotationTransform")
    [(name, message)] = option_errors(cls, {"A": text})
    assert name == "A" and fault in message and option_errors(cls, {"A": "randn(D, D)"}) == []


def test_options_of_every_registered_layer_can_be_checked():
    for cls in LAYERS.values():
        assert option_errors(cls, {}) == []
        [(name, message)] = option_errors(cls, {"no_such_option": 1})
        assert name == "no_such_option" and "unknown" in message


def test_hints_under_postponed_evaluation(tmp_path):
    postponed = """
from __future__ import annotations
from typing import TYPE_CHECKING, Literal
from layers import InvertibleLinear
if TYPE_CHECKING:
    from decimal import Decimal

class Fine(InvertibleLinear):
    def __init__(self, shape: tuple[int, ...], start: Literal["a", "b"] = "a") -> None: ...
    def forward(self, x): ...
    def inverse(self, y): ...

class Hidden(Fine):
    def __init__(self, shape: tuple[int, ...], start: Decimal = 1) -> None: ...
"""
    (tmp_path / "postponed.py").write_text(postponed)
    fine, hidden = (resolve_layer(f"postponed.py:{name}", tmp_path) for name in ("Fine", "Hidden"))
    assert "one of 'a', 'b'" in option_errors(fine, {"start": "c"})[0][1]
    assert "'Decimal' is not defined" in option_errors(hidden, {"start": 1})[0][1]


def test_a_layer_file_does_not_set_the_default_dtype_of_others(tmp_path):
    text = "import torch\nfrom layers.conv1x1 import Conv1x1\ntorch.set_default_dtype(torch.double)\nMine = Conv1x1\n"
    (tmp_path / "mine.py").write_text(text)
    resolve_layer("mine.py:Mine", tmp_path)
    assert torch.get_default_dtype() == torch.float32
