"""Scripts of the docs as modules."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def load_script() -> Iterator[Callable[[str], ModuleType]]:
    """Return a function that imports a script by its path below docs/."""
    loaded = []

    def load(path: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS / path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where dataclasses look up their types
        loaded.append(spec.name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in loaded:
        del sys.modules[name]
