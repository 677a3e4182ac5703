"""The likelihood of rows in the units of their file, against numerical integration in one dimension."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from harness.core.settings import DataRef
from harness.datasets import Store, find_dataset
from harness.evaluation.evaluation import evaluate
from harness.pipeline.pipeline import Pipeline

HEAVY = 40 + 3 * np.random.default_rng(0).standard_t(2, 300)
NOISES = {
    "none": (HEAVY.round(12), {}, 0.0),
    "lattice": (HEAVY.round(1), {}, 0.1),
    "stated": (HEAVY.round(1), {"noise": 0.7}, 0.7),
    "last_digit": ([float(f"{value:.3g}") for value in HEAVY], {"noise": "last_digit"}, None),
}


class Narrow(nn.Module):
    """z = x / 0.3 - 1."""

    def terms(self, x):
        z = x.flatten(1) / 0.3 - 1
        prior = -0.5 * (z.square() + math.log(2 * math.pi)).sum(1)
        return prior, torch.full((len(x),), -math.log(0.3))


@pytest.mark.parametrize("scaling", ["scale", "standard", "asinh"])
@pytest.mark.parametrize("noise", NOISES)
def test_a_row_has_its_density_in_the_units_of_the_file(tmp_path, noise, scaling):
    column, options, width = NOISES[noise]
    (tmp_path / "t.csv").write_text("\n".join(["a", *map(repr, map(float, column))]))
    store, csv = Store.at(tmp_path, offline=True), find_dataset("csv")
    splits = csv.loaded(store, csv.located({"file": "t.csv", "shuffle": True, **options}, None, tmp_path))
    pipeline = Pipeline(splits, DataRef(label="t", name="csv", preprocessing=scaling), torch.float64)
    result = evaluate(Narrow(), pipeline, "test", 400, 64, 0, torch.float64)

    [lattice] = splits.lattices or [None]
    offset, step = (0.0, 1.0) if lattice is None else (lattice.offset, lattice.step)

    def z(y):
        scaled = pipeline.preprocessing(torch.from_numpy((y - offset) / step).reshape(-1, 1, 1))[0]
        return scaled.flatten().numpy() / 0.3 - 1

    def density(y):  # by a finite difference, so that no log-determinant is used
        small = 1e-6
        return np.exp(-0.5 * z(y) ** 2) / math.sqrt(2 * math.pi) * (z(y + small) - z(y - small)) / (2 * small)

    ends = pipeline.preprocessing.inverse(torch.tensor([[[-2.4]], [[3.0]]], dtype=torch.float64)).flatten().numpy()
    inner = np.sinh(np.linspace(-9, 9, 200_001)) / np.sinh(9)  # dense in the middle
    whole = ends.mean() + inner * np.ptp(ends) / 2
    assert np.trapezoid(density(offset + step * whole), offset + step * whole) == pytest.approx(1, abs=1e-3)

    low = offset + step * splits.test.flatten().astype(float)
    widths = {None: 10.0 ** (np.floor(np.log10(np.abs(low))) - 2)}.get(width, width) * np.ones(len(low))
    middles = (np.arange(200) + 0.5) / 200
    expected = np.mean(
        [-np.log(density(value + wide * middles)).mean() for value, wide in zip(low, widths, strict=True)]
    )
    assert pipeline.nats_per_event(result.nats_per_dim) == pytest.approx(expected, abs=0.01)
