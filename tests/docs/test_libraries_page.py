"""The examples of docs/how-to/libraries.md and data.md: layers, flows that train them, and files that are read."""

import math
import re
import shlex
from pathlib import Path

import pytest
import torch
import yaml

from harness import plan
from harness.checking.check_layer import run_check
from harness.checking.layer_case import LayerCase
from harness.cli.parser import make_parser
from harness.core.errors import DataMissing
from harness.core.layer_classes import check_options, resolve_layer
from harness.datasets import Store, find_dataset
from harness.planning.settle import load_suite, scope_of
from harness.planning.strict_yaml import parse_options

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGE, DATA_PAGE = ((HOW_TO / name).read_text() for name in ("libraries.md", "data.md"))
CHECK, FLOWS, SUITE = PAGE.split("\n## ")[1:]
RULES = ("log-det", "reverse-log-det", "inverse", "gradients", "weight-updates")
LIBRARIES = ["nflows", "normflows", "freia", "zuko", "distributions"]


def blocks(text, language=""):
    """Return the fenced blocks of a page or section in one language; commands have none."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [code for name, code in blocks if name == language]


def commands(section):
    """Return the parsed command lines of a section."""
    lines = [shlex.split(line) for block in blocks(section) for line in block.splitlines()]
    assert all(line[:3] == ["python", "-m", "harness"] for line in lines)
    return [make_parser().parse_args(line[3:]) for line in lines]


def failed_rules(args, shape=(4, 1), rules=RULES):
    """Return the rules that the layer of a `check-layer` command fails on one shape."""
    cls = resolve_layer(args.layer)
    options = check_options(cls, parse_options(args.settings))
    case = LayerCase(cls, shape, torch.float64, options, training=False)
    return [rule for rule in rules if run_check(rule, case)]


@pytest.mark.filterwarnings("ignore")
def test_the_layers_named_pass_and_join_a_suite():
    *checks, run = commands(CHECK)
    libraries = [args.layer.partition(".")[0] for args in checks]
    assert libraries == ["nflows", "normflows", "FrEIA", "pyro", "zuko", "torch"]
    for args in checks:
        assert failed_rules(args, (2, 2, 2), rules=("log-det", "inverse")) == [], args.layer
    planned = plan(run.suite, profile=run.profile, only=run.only, settings=run.settings, layers=run.layers)
    assert {row for trial in planned.plan.trials for row in trial.rows} >= {"LULinearPermute", "butterfly"}


def test_the_rows_are_those_of_a_suite(tmp_path):
    (rows,) = blocks(CHECK, "yaml")
    text = yaml.safe_dump({"suite": "rows", "kind": "density", "profiles": {"smoke": {"datasets": {"digits": {}}}}})
    (tmp_path / "rows.yaml").write_text(text + rows)
    suite = load_suite(tmp_path / "rows.yaml", shapes=True)
    assert list(scope_of(suite, "smoke").rows) == ["conv1x1", "LU of nflows", "rotation of zuko"]


@pytest.mark.filterwarnings("ignore")
def test_the_layer_is_trained_in_every_flow():
    examples, names = blocks(FLOWS, "python"), {}
    assert [re.search(r"import to_(\w+)", code)[1] for code in examples] == LIBRARIES
    for library, code in zip(LIBRARIES, examples, strict=True):
        torch.manual_seed(0)
        exec(compile(code.replace("range(100)", "range(20)"), library, "exec"), names)
        losses, layer = names["losses"], names["layer"]
        assert all(map(math.isfinite, losses)) and sum(losses[-5:]) < 0.9 * sum(losses[:5]), library
        assert not torch.equal(layer.dense(), torch.eye(8)), library


@pytest.mark.filterwarnings("ignore")
def test_the_rules_fail_that_the_page_explains():
    pyro, triangular = commands(SUITE)
    assert failed_rules(pyro) == ["weight-updates"]
    assert failed_rules(triangular) == ["log-det", "inverse"]


FETCHED = ("wfdb",)  # its files cannot be made by an example
EXAMPLES = {"suite": "examples", "kind": "density", "layers": {"conv1x1": {}}}


def test_every_example_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in blocks(DATA_PAGE, "python"):
        if code.startswith("# mydata.py"):
            Path("mydata.py").write_text(code)
        else:
            exec(compile(code, "example", "exec"), {})
    datasets = {label: entry for text in blocks(DATA_PAGE, "yaml") for label, entry in yaml.safe_load(text).items()}
    assert len(datasets) == 11
    Path("examples.yaml").write_text(yaml.safe_dump(EXAMPLES | {"profiles": {"smoke": {"datasets": datasets}}}))
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
