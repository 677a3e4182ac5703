"""Files that third-party code opens: which are named, with what digest."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from harness.core.file_modules import module_of_file
from harness.core.provenance.opened_files import OpenedFiles
from harness.core.provenance.third_party_files import follow
from harness.core.third_party import source_digest

LAYER = """
import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def read():
    np.load(HERE / ("hid" + "den.npy"))
    np.load(HERE / "named.npy", mmap_mode="r")


def write():
    (HERE / "log.txt").write_text("log")
    import wave  # a file of the library


def relative():
    with open("here." + "json") as file:
        json.load(file)
"""


@pytest.fixture
def layer(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    path = tmp_path / "own" / "mine.py"
    path.write_text(LAYER)
    for name in ("named.npy", "hidden.npy"):
        np.save(path.with_name(name), np.eye(2))
    (tmp_path / "here.json").write_text("{}")
    return path


def opened(layer: Path, *names: str) -> str | None:
    watch = OpenedFiles(follow(layer.name, layer).files)
    module = module_of_file(layer)
    with watch:
        for name in names:
            getattr(module, name)()
        Path("here.json").read_bytes()  # other code than that of the layer
    module.relative()  # no longer watched
    return watch.text()


def test_files_that_a_layer_reads_are_named_unless_they_are_part_of_its_digest(layer):
    sums = {
        name: hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        for name, path in {"hidden.npy": layer.with_name("hidden.npy"), "here.json": Path("here.json")}.items()
    }
    assert opened(layer, "write") is None
    assert opened(layer, "read") == (
        f"not part of the digest of its source: hidden.npy (SHA-256 {sums['hidden.npy']}), which mine.py opens"
    )
    text = opened(layer, "relative", "read", "write")
    assert text is not None and f"here.json (SHA-256 {sums['here.json']}), which mine.py opens" in text


def test_a_file_that_the_source_names_is_part_of_its_digest(layer):
    before = source_digest(layer)
    assert {path.name for path in follow(layer.name, layer).files} == {"mine.py", "named.npy"}
    np.save(layer.with_name("hidden.npy"), np.zeros(2))
    assert source_digest(layer) == before
    np.save(layer.with_name("named.npy"), np.zeros(2))
    assert source_digest(layer) != before
    layer.write_text(LAYER + "OTHER = 'here.json'\n")
    assert "here.json" in {path.name for path in follow(layer.name, layer).files}  # in the working directory
