"""A layer is one file, and so is a data set: dropped into a copy of the project, everything takes them in.

The layer refuses images, and every shared test takes that refusal in as well.
"""

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


class Ramps(Dataset, name="ramps"):
    """Noise of 16 levels."""

    info = DatasetInfo(title="Images of noise", kind="image", how_to_get="nothing to do")

    def shape(self, options):
        return (1, 4, 4)

    def load(self, store, options):
        self.parse(options)
        images = np.random.default_rng(0).integers(0, 16, size=(120, 1, 4, 4), dtype=np.uint8)
        return Splits(images[:80], images[80:100], images[100:], levels=16, description="noise")
'''
SUITE = """\
suite: noise
kind: density
title: Likelihoods of noise
layers: {conv1x1: {}}
flow: {levels: 1, steps: 1, width: 8}
training: {steps: 2, evaluate_every: 2}
profiles: {smoke: {seeds: 1, datasets: {ramps: {}}}}
"""
COMMANDS = """\
from harness.cli.parser import main

for command in (
    "list layers",
    "check-layer timewise",
    "plan layers_runtime --profile smoke",
    "validate layers",
    "list datasets",
    "run noise.yaml --profile smoke",
):
    assert main(command.split()) == 0, command
"""
# The items with the layer's name, and the tests that go through all layers in one item.
TESTS = "timewise or of_all_layers or every_registered or page_for_each"
REFUSED = 11  # two flows, two audits, four operations, two options, one count of parameters: all on images


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project with one more file."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("csrc", "flows", "harness", "layers", "suites", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", Path(__file__).name))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "layers" / "timewise.py").write_text(LAYER)
    (folder / "harness" / "datasets" / "ramps.py").write_text(DATASET)
    (folder / "noise.yaml").write_text(SUITE)
    return folder


def python(folder, *arguments):
    """What a Python process in the copy prints; it must end well."""
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


def test_the_commands_take_it(copy):
    text = python(copy, "-c", COMMANDS)
    assert "timewise: y = exp(s) x" in text and "family     scales" in text
    assert re.search(r"runtime.*\btimewise\b", text), text
    assert "ramps: Images of noise" in text and "ramps, bits/dim" in text


def test_the_tests_of_all_layers_take_it(copy):
    files = [str(path) for path in copy.glob("tests/**/test_*.py") if "from layers import LAYERS" in path.read_text()]
    text = python(copy, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", TESTS, *files)
    skipped = re.findall(r"^SKIPPED \[(\d+)\] \S+: (.*)", text, re.MULTILINE)
    refused = [int(number) for number, reason in skipped if reason.startswith("refused: timewise: shape (")]
    others = [reason for _, reason in skipped if not reason.startswith("refused: ")]
    assert sum(refused) == REFUSED and others in ([], ["no CUDA device"]), text
