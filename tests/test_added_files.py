"""Add things to a copy of the project, which finds them.

A layer, a backbone, a data set, a third-party one, a figure, an executor and a strategy of a tuning are one file each,
a kind of trial is one folder, and no other file changes. A key of suites changes the model that has it and the code
that uses it.
The layer refuses images, which shared tests and suites allow.
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
import shlex
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
    "run added.yaml --profile smoke --out once --executor inorder --only layer=conv1x1 --only dataset=noise",
    "plan added.yaml --profile smoke --set tuning.candidates=2 --set tuning.strategy=corners",
    "run added.yaml --profile smoke --out scaled --only dataset=noise --set 'flow={backbone: scales, steps: 3}'",
):
    print("$", command, flush=True)
    assert main(shlex.split(command)) == 0, command
"""
KEY = {
    "harness/core/settings.py": (
        "    clip_norm: Positive | None = None\n",
        "    clip_norm: Positive | None = None\n    least_rate: float = 0.0\n",
    ),
    "harness/training/updates.py": (
        "return settings.learning_rate * settings.decay ** (step - settings.warmup)",
        "return max(settings.least_rate, settings.learning_rate * settings.decay ** (step - settings.warmup))",
    ),
}
"""File -> its text before and after the key `training.least_rate` is added."""
# Tests of the added layer, and tests of all layers in one item.
TESTS = "timewise or of_all_layers or every_registered or page_for_each"
# All on images: one flow, two audits, all operations, one option, one count of parameters.
REFUSED = 6


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


@pytest.fixture(scope="module")
def printed(project):
    """Return command -> what it has printed in the copy."""
    text = run_python(project, "-c", COMMANDS)
    return dict(part.split("\n", 1) for part in text.removeprefix("$ ").split("\n$ "))


def test_commands_find_added_files(project, printed):
    text = str(printed)
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


def test_commands_find_an_added_executor_and_an_added_strategy(printed):
    once = next(text for command, text in printed.items() if "inorder" in command)
    assert "in order: noise-conv1x1-s0" in once and "1 trial: 1 ok" in once
    plan = next(text for command, text in printed.items() if "corners" in command)
    assert plan.count(" tuning ") == 2 * 4, "two candidates of each layer on each data set"


def test_commands_find_an_added_backbone(project, printed):
    """Its two trials pass the audit; a setting that it does not take, and a name that no file has, are refused."""
    trained = next(text for command, text in printed.items() if command.startswith("run") and "scales" in command)
    assert "2 trials: 2 ok" in trained and "3 pairs of scales and layers" in trained
    assert "flows/backbones" in next((project / "scaled").rglob("records/*.json")).read_text()
    refuse = "from harness.cli.parser import main; assert main('plan added.yaml --profile smoke --set {}'.split()) == 2"
    for setting in ("flow.backbone=scales --set flow.width=9", "flow.backbone=skales"):
        run_python(project, "-c", refuse.format(setting))


def test_a_key_of_suites_is_two_files(project, tmp_path):
    """The settings that have it, and the code that uses it."""
    folder = tmp_path / "project"
    shutil.copytree(project, folder, ignore=shutil.ignore_patterns("reports", "once"))
    for path, (before, after) in KEY.items():
        text = (folder / path).read_text()
        assert text.count(before) == 1, path
        (folder / path).write_text(text.replace(before, after))
    command = "run added.yaml --profile smoke --only dataset=noise --set training.warmup=0"
    values = {}
    for rate in ("0.0", "0.01"):
        run_python(folder, "-m", "harness", *command.split(), "--set", f"training.least_rate={rate}", "--out", rate)
        with (folder / rate / "added" / "results.csv").open() as file:
            values[rate] = [line["nats_per_dim"] for line in csv.DictReader(file)]
    run_python(project, "-m", "harness", *command.split(), "--out", "before")
    with (project / "before" / "added" / "results.csv").open() as file:
        assert values["0.0"] == [line["nats_per_dim"] for line in csv.DictReader(file)] != values["0.01"]


def test_shared_tests_find_the_added_layer(project):
    files = [path for path in project.glob("tests/**/test_*.py") if "from layers import LAYERS" in path.read_text()]
    options = ("-q", "-n", "0", "-p", "no:cacheprovider", "-m", "", "-k", TESTS)  # tests marked `system` as well
    text = run_python(project, "-m", "pytest", *options, *map(str, files))
    skipped = re.findall(r"^SKIPPED \[(\d+)\] \S+: (.*)", text, re.MULTILINE)
    refused = [int(number) for number, reason in skipped if reason.startswith("refused: timewise: shape (")]
    others = [reason for _, reason in skipped if not reason.startswith("refused: ")]
    assert sum(refused) == REFUSED and others in ([], ["no CUDA device"]), text
