"""A flow's `log_prob` and `sample` in the units of the file, in one dimension, against numerical integration."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness.core.settings import DataRef
from harness.datasets import find_dataset
from harness.kinds.density.trained import TrainedFlow
from harness.pipeline.pipeline import Pipeline

NOISES = {"a width": 0.5, "the last digit": "last_digit", "none": None}


class Normal(torch.nn.Module):
    """The identity, with a standard normal base."""

    def terms(self, x):
        """Return the log-densities of the base and the log-det."""
        yield (-0.5 * x**2 - 0.5 * math.log(2 * math.pi)).flatten(1).sum(1)
        yield torch.zeros(len(x))

    def sample(self, n, generator=None):
        """Draw events."""
        return torch.randn(n, 1, 1, generator=generator)


@pytest.fixture(params=NOISES)
def trained(request, store):
    """Return a function that makes a trained flow of a column, heavy-tailed with four digits or continuous."""
    noise = NOISES[request.param]
    values = 20 + 4 * np.random.default_rng(0).standard_t(4, 500)
    texts = [f"{value:.4g}" if noise == "last_digit" else repr(value) for value in values.tolist()]
    (store.root / "t.csv").write_text("\n".join(["a", *texts]))
    splits = find_dataset("csv").loaded(store, {"file": "t.csv", "columns": ["a"], "noise": noise})

    def make(scaling):
        pipeline = Pipeline(splits, DataRef(label="t", name="csv", preprocessing=scaling))
        trial = SimpleNamespace(training=SimpleNamespace(evaluation_batch=4096))
        return TrainedFlow(trial, Normal(), pipeline)

    return make


@pytest.mark.parametrize("scaling", ["scale", "standard", "asinh"])
def test_the_density_integrates_to_one_and_samples_follow_it(trained, scaling):
    flow = trained(scaling)
    drawn = np.sort(flow.sample(20_000, seed=1).ravel())
    ends = np.quantile(drawn, [0.0005, 0.9995])
    grid = np.linspace(*ends, 200_001)
    density = np.exp(flow.log_prob(grid.reshape(-1, 1, 1)))
    cumulated = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    assert cumulated[-1] == pytest.approx(0.999, abs=0.01)
    empirical = np.searchsorted(drawn, grid) / len(drawn)
    # A value stands for the cell above it, of which the density is taken at a random point.
    assert np.abs(empirical - cumulated).max() < 0.02 + 0.5 * density.max() * (flow.pipeline.dequantises * 0.5)
