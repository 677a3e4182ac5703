"""A third-party file imports the modules beside it, from any folder, and never those of another folder."""

import sys
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.file_modules import module_of_file
from harness.core.layer_classes import resolve_layer

LAYER = "from layers.conv1x1 import Conv1x1\n{}\n\n\nclass Mine(Conv1x1):\n    place = {}\n"


def write(folder: Path, **files: str) -> Path:
    """Write NAME=CONTENT as NAME.py, with "__" for a folder, and return the folder."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_two_helpers_of_one_name_are_refused_and_never_mixed(tmp_path):
    lazily = "\n\ndef lazily():\n    from helper import late\n\n    return late\n"
    for name in ("one", "two"):
        write(tmp_path / name, mine=LAYER.format("import helper", "helper.PLACE") + lazily)
        write(tmp_path / name, helper=f"from deep import PLACE\nlate = {name!r}\n", deep=f"PLACE = {name!r}\n")
        write(tmp_path / name, other=LAYER.format("", "0"))
    cls = resolve_layer(f"{tmp_path}/one/mine.py:Mine")
    assert cls.place == "one" and sys.modules[cls.__module__].lazily() == "one"
    with pytest.raises(UserError) as refused:
        resolve_layer(f"{tmp_path}/two/mine.py:Mine")
    assert all(str(tmp_path / name) in str(refused.value) for name in ("one/deep.py", "two/deep.py")) or all(
        str(tmp_path / name / "helper.py") in str(refused.value) for name in ("one", "two")
    )
    assert resolve_layer(f"{tmp_path}/two/other.py:Mine").place == 0


@pytest.mark.parametrize(
    "line",
    [
        "import parts.inner as inner",
        "import parts.inner; inner = parts.inner",
        "from parts import inner",
        "from parts.inner import PLACE; import parts.inner as inner",
        "from sibling import inner",
    ],
)
def test_every_form_of_import_finds_a_package_beside_a_file(tmp_path, line):
    write(tmp_path, mine=LAYER.format(line, "inner.PLACE"), sibling="from parts import inner\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from . import inner\n")
    (tmp_path / "parts" / "inner.py").write_text("from .deep import PLACE\n")
    (tmp_path / "parts" / "deep.py").write_text(f"PLACE = {str(tmp_path)!r}\n")
    assert resolve_layer(f"{tmp_path}/mine.py:Mine").place == str(tmp_path)


def test_python_and_this_project_are_not_replaced_by_files_beside(tmp_path):
    wrong = "raise AssertionError('imported')\n"
    write(tmp_path, layers=wrong, harness=wrong, random=wrong)
    (tmp_path / "zuko").mkdir()  # without __init__.py
    write(tmp_path, torch=LAYER.format("import random, torch, zuko", "(torch.__name__, zuko.__file__)"))
    name, file = resolve_layer(f"{tmp_path}/torch.py:Mine").place
    assert name == "torch" and file is not None


def test_a_file_named_twice_is_one_module(tmp_path):
    write(tmp_path, base=LAYER.format("", "0"), mine="from base import Mine as Base\n\n\nclass Mine(Base): ...\n")
    assert issubclass(resolve_layer(f"{tmp_path}/mine.py:Mine"), resolve_layer(f"{tmp_path}/base.py:Mine"))
    assert module_of_file(tmp_path / "base.py") is module_of_file(tmp_path / "base.py")


def test_no_bytecode_stands_for_a_file(tmp_path, monkeypatch):
    """Python tells a changed file by its size and second alone."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write(tmp_path, mine=LAYER.format("import helper", "0"), helper="")
    resolve_layer(f"{tmp_path}/mine.py:Mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["helper.py", "mine.py"]
