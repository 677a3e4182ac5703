"""`pytest --benchmark-only`: the sweep points of suites/runtime.yaml on pytest-benchmark's clock.

Without `--benchmark-only` each body runs once, untimed, at the smoke profile's sizes.
"""

import pytest
import torch

from harness.pipeline.models import make_layer
from harness.planning.settle import load_suite, settle
from harness.timing.operations import perturb, prepare
from layers import LAYERS, UnsupportedShape


def pytest_generate_tests(metafunc):
    profile = "quick" if metafunc.config.getoption("benchmark_only") else "smoke"
    planned = settle(load_suite("runtime"), profile=profile, device="cpu").plan()[0].trials
    trials = [trial for trial in planned if trial.process == 0]
    cases = [
        pytest.param(trial, layer, operation, id=f"{trial.slug}-{layer.row}-{operation}")
        for trial in trials
        for layer in trial.layers
        for operation in trial.operations
    ]
    metafunc.parametrize(("trial", "ref", "operation"), cases)


def test_operation(benchmark, trial, ref, operation):
    benchmark.group = f"{trial.slug} {operation}"
    try:
        layer = make_layer(ref, trial.shape, seed=0)
    except UnsupportedShape as error:
        pytest.skip(str(error))
    perturb(layer, 0.05, torch.Generator().manual_seed(0))
    call = prepare(layer, trial.batch, operation, dtype=torch.float32, device=torch.device("cpu"))
    benchmark(call)
    assert ref.layer in LAYERS
