"""Add a layer, a data set, a third-party one, a figure and a kind of trial to a copy of the project, which finds them.

No other file changes. The layer refuses images, which shared tests and suites allow.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[1]
ADDED = Path(__file__).with_name("added")  # files at the paths where they are copied
COMMANDS = """\
from harness.cli.parser import main

for command in (
    "list layers",
    "check-layer timewise",
    "plan layers_runtime --profile smoke",
    "validate layers",
    "list datasets",
    "plan added.yaml --profile smoke",
    "run added.yaml --profile smoke",
    "report reports/added",
    "plan entries.yaml --profile smoke",
    "run entries.yaml --profile smoke",
):
    print("$", command, flush=True)
    assert main(command.split()) == 0, command
"""
# Tests of the added layer, and tests of all layers in one item.
TESTS = "timewise or of_all_layers or every_registered or page_for_each"
# All on images: two flows, two audits, five operations, two options, two large events, one count of parameters.
REFUSED = 14


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a copy of the project with the added files."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("csrc", "flows", "harness", "layers", "suites", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", Path(__file__).name))
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ADDED, folder, dirs_exist_ok=True)
    return folder


def run_python(folder, *arguments):
    """Run a Python process in the copy, check that it exits with 0, and return its standard output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_commands_find_added_files(project):
    text = run_python(project, "-c", COMMANDS)
    printed = dict(part.split("\n", 1) for part in text.removeprefix("$ ").split("\n$ "))
    assert "timewise: y = exp(s) x" in printed["list layers"] and "family     scales" in printed["list layers"]
    assert re.search(r"runtime.*\btimewise\b", printed["plan layers_runtime --profile smoke"]), text
    assert "noise: Sequences of noise" in printed["list datasets"]
    for label in ("noise", "images"):
        for layer in ("conv1x1", "timewise"):
            assert f"{label}-{layer}" in printed["plan added.yaml --profile smoke"], text
    with (project / "reports" / "added" / "results.csv").open() as file:
        results = {(line["dataset"], line["layer"]): line["status"] for line in csv.DictReader(file)}
    assert results == {
        ("noise", "conv1x1"): "ok",
        ("noise", "timewise"): "ok",
        ("images", "conv1x1"): "ok",
        ("images", "timewise"): "unsupported",
    }
    table = printed["report reports/added"]
    assert "noise, nats/dim" in table and "images, bits/dim" in table
    assert (project / "reports" / "added" / "figures" / "sizes.svg").is_file()
    assert "<h2>Sizes</h2>" in (project / "reports" / "added" / "index.html").read_text()

    assert printed["plan entries.yaml --profile smoke"].count("entries  noise") == 2, text
    for layer in ("conv1x1", "timewise"):
        assert re.search(rf"^noise +{layer} +16$", printed["run entries.yaml --profile smoke"], re.M), text
    assert (project / "reports" / "entries" / "figures" / "entries.svg").is_file()


def test_shared_tests_find_the_added_layer(project):
    files = [path for path in project.glob("tests/**/test_*.py") if "from layers import LAYERS" in path.read_text()]
    text = run_python(project, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", TESTS, *map(str, files))
    skipped = re.findall(r"^SKIPPED \[(\d+)\] \S+: (.*)", text, re.MULTILINE)
    refused = [int(number) for number, reason in skipped if reason.startswith("refused: timewise: shape (")]
    others = [reason for _, reason in skipped if not reason.startswith("refused: ")]
    assert sum(refused) == REFUSED and others in ([], ["no CUDA device"]), text
