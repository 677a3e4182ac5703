"""The examples of docs/how-to/data.md: the files that they make are read by the data sets that they name."""

import re
from pathlib import Path

import pytest
import yaml

from harness.core.errors import DataMissing
from harness.datasets import Store, find_dataset
from harness.planning.overrides import scope_of
from harness.planning.settle import load_suite

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "data.md"
FETCHED = ("wfdb",)  # its files cannot be made by an example
SUITE = {"suite": "examples", "kind": "density", "layers": {"conv1x1": {}}}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_every_example_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in blocks("python"):
        if code.startswith("# mydata.py"):
            Path("mydata.py").write_text(code)
        else:
            exec(compile(code, "example", "exec"), {})
    datasets = {label: entry for text in blocks("yaml") for label, entry in yaml.safe_load(text).items()}
    assert len(datasets) == 11
    Path("examples.yaml").write_text(yaml.safe_dump(SUITE | {"profiles": {"smoke": {"datasets": datasets}}}))
    store = Store(tmp_path / "no-root", tmp_path / "cache", offline=True)
    suite = load_suite("examples.yaml")
    for label, column in scope_of(suite, "smoke").data.items():
        data = column.entry.reference(label, suite.origin.folder)
        dataset, options = find_dataset(data.name), dict(data.options)
        if data.name in FETCHED:
            with pytest.raises(DataMissing, match=r"data root|no-root"):
                dataset.check(store, options)
        else:
            dataset.check(store, options)
