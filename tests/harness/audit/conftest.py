"""Data and flows for the tests of the audit."""

from pathlib import Path

import numpy as np
import pytest
import torch

from flows import Glow
from harness.audit.audit import audit
from harness.core.layer_classes import resolve_layer
from harness.core.settings import DataRef
from harness.datasets.base import Splits
from harness.evaluation.evaluation import evaluate
from harness.pipeline.pipeline import Pipeline
from harness.timing.operations import perturb
from layers.conv1x1 import Conv1x1


@pytest.fixture(scope="session")
def make_data():
    """Return a function that makes random images or sequences in a pipeline."""

    def make(shape=(1, 8, 8), test_events=8, **options):
        generator = np.random.default_rng(0)
        top = 17 if len(shape) == 3 else 1024
        sizes = (32, 8, test_events)
        train, validation, test = (generator.integers(0, top, (n, *shape), dtype=np.int16) for n in sizes)
        levels = 17 if len(shape) == 3 else None
        splits = Splits(train, validation, test, levels=levels, description="random")
        return Pipeline(splits, DataRef(label="random", name="random", **options))

    return make


@pytest.fixture(scope="session")
def make_flow():
    """Return a function that builds a flow with noise on its weights: at initialisation many faults have no effect."""

    def make(data, make_layer=Conv1x1, make_mixer=None, noise=0.3, **options):
        settings = {"levels": 2, "steps": 1, "width": 4} | options
        flow = Glow(data.shape, make_layer, make_mixer, **settings)
        flow.initialise(data.prepare(data.raw("train")[:], torch.Generator().manual_seed(0))[0])
        perturb(flow, noise, torch.Generator().manual_seed(0))
        return flow

    return make


@pytest.fixture(scope="session")
def mutant():
    """Return a function that returns a class of tests/harness/mutants.py by its name."""
    return lambda name: resolve_layer(f"mutants.py:{name}", Path(__file__).parents[1])


@pytest.fixture(scope="session")
def audited():
    """Return a function that evaluates the test split and audits the evaluation, as a trial does."""

    def run(flow, data, make_layer=None, reload=None, batch=4):
        return audit(flow, data, evaluate(flow, data, "test", 1, batch, 0), make_layer, reload)

    return run
