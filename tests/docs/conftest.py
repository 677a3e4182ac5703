"""Scripts of the docs as modules."""

import importlib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def load_script():
    """Return a function that imports a script by its path below docs/."""

    def load(path):
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str((DOCS / path).parent))
            return importlib.import_module(Path(path).stem)

    return load
