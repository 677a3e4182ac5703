"""Add a layer, a data set and a third-party data set to a copy of the project, one file each, and change nothing else.

Every command and every shared test must find them; the layer refuses images, which shared tests and suites must allow.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYER = '''\
from typing import Literal

import torch
from torch import nn

from layers.base import InvertibleLinear, UnsupportedShape


class Timewise(InvertibleLinear, name="timewise"):
    """y = exp(s) x with a number s for each channel of a sequence; no bias.

    Family: scales
    Source: this test
    Cost:
        forward: D multiplications
        inverse: D multiplications
        log-det: C additions
    Shapes: (C, L)
    """

    def __init__(self, shape: tuple[int, ...], start: Literal["identity", "halves"] = "identity") -> None:
        super().__init__(shape)
        if len(shape) == 3:
            raise UnsupportedShape(f"timewise: shape {shape} has two spatial axes; use (channels, length)")
        self.log_scale = nn.Parameter(torch.full((shape[0], 1), -0.7 if start == "halves" else 0.0))

    def forward(self, x):
        return x * self.log_scale.exp(), self.positions * self.log_scale.sum()

    def inverse(self, y):
        return y * (-self.log_scale).exp()
'''
DATASET = '''\
import numpy as np

from harness.datasets.base import Dataset, DatasetInfo, Splits


class Ramps(Dataset{name}):
    """Noise of 16 levels."""

    info = DatasetInfo(title="{title} of noise", kind="{kind}", how_to_get="nothing to do")

    def shape(self, options):
        return {shape}

    def load(self, store, options):
        events = np.random.default_rng(0).integers(0, 16, size=(120, *self.shape(options)), dtype=np.uint8)
        return Splits(events[:80], events[80:100], events[100:], levels={levels}, description="noise")
'''
SEQUENCES = DATASET.format(name=', name="ramps"', title="Sequences", kind="sequence", shape="(2, 8)", levels=None)
IMAGES = DATASET.format(name="", title="Images", kind="image", shape="(1, 4, 4)", levels=16)
SUITE = """\
suite: noise
kind: density
title: Likelihoods of noise
unsupported: true
layers: {conv1x1: {}, timewise: {}}
flow: {levels: 1, steps: 1, width: 8}
training: {steps: 2, evaluate_every: 2}
profiles: {smoke: {seeds: 1, datasets: {ramps: {}, images: {data: "images.py:Ramps"}}}}
"""
COMMANDS = """\
from harness.cli.parser import main

for command in (
    "list layers",
    "check-layer timewise",
    "plan layers_runtime --profile smoke",
    "validate layers",
    "list datasets",
    "plan noise.yaml --profile smoke",
    "run noise.yaml --profile smoke",
    "report reports/noise",
):
    print("$", command, flush=True)
    assert main(command.split()) == 0, command
"""
# The items with the layer's name, and the tests that go through all layers in one item.
TESTS = "timewise or of_all_layers or every_registered or page_for_each"
# All on images: two flows, two audits, four operations, two options, two large events, one count of parameters.
REFUSED = 13


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a copy of the project with the added files."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("csrc", "flows", "harness", "layers", "suites", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", Path(__file__).name))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "layers" / "timewise.py").write_text(LAYER)
    (folder / "harness" / "datasets" / "ramps.py").write_text(SEQUENCES)
    (folder / "images.py").write_text(IMAGES)
    (folder / "noise.yaml").write_text(SUITE)
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
    assert "ramps: Sequences of noise" in printed["list datasets"]
    for label in ("ramps", "images"):
        for layer in ("conv1x1", "timewise"):
            assert f"{label}-{layer}" in printed["plan noise.yaml --profile smoke"], text
    with (project / "reports" / "noise" / "results.csv").open() as file:
        results = {(line["dataset"], line["layer"]): line["status"] for line in csv.DictReader(file)}
    assert results == {
        ("ramps", "conv1x1"): "ok",
        ("ramps", "timewise"): "ok",
        ("images", "conv1x1"): "ok",
        ("images", "timewise"): "unsupported",
    }
    assert (
        "ramps, nats/dim" in printed["report reports/noise"] and "images, bits/dim" in printed["report reports/noise"]
    )


def test_shared_tests_find_the_added_layer(project):
    files = [
        str(path) for path in project.glob("tests/**/test_*.py") if "from layers import LAYERS" in path.read_text()
    ]
    text = run_python(project, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", TESTS, *files)
    skipped = re.findall(r"^SKIPPED \[(\d+)\] \S+: (.*)", text, re.MULTILINE)
    refused = [int(number) for number, reason in skipped if reason.startswith("refused: timewise: shape (")]
    others = [reason for _, reason in skipped if not reason.startswith("refused: ")]
    assert sum(refused) == REFUSED and others in ([], ["no CUDA device"]), text
