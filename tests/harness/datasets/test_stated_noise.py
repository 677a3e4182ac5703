"""Noise of a stated width bounds the density of any values, whether they lie on a lattice or not."""

import math
import re

import numpy as np
import pytest
import torch

import harness.datasets  # noqa: F401  registers csv and npz
from harness.core.errors import DataError
from harness.core.settings import DataRef
from harness.datasets.base import DATASETS
from harness.pipeline.data_remarks import examine
from harness.pipeline.pipeline import Pipeline

MAGIC = 400  # rows


@pytest.fixture
def table(store):
    """Write a table: a has four digits over two decades, b is zero in 60 %, c is continuous, d is a category."""
    draws = np.random.default_rng(0)
    a = [float(f"{value:.4g}") for value in 10 ** draws.uniform(0, 2, MAGIC)]
    b = np.where(draws.random(MAGIC) < 0.6, 0.0, draws.random(MAGIC))
    rows = zip(a, b, draws.standard_normal(MAGIC), draws.integers(0, 3, MAGIC), strict=True)
    lines = [f"{a!r},{float(b)!r},{float(c)!r},{d}" for a, b, c, d in rows]
    (store.root / "table.csv").write_text("\n".join(["a,b,c,d", *lines]))

    def load(**options):
        return DATASETS["csv"]().loaded(store, {"file": "table.csv", "columns": ["a", "b", "c", "d"], **options})

    return load


def test_the_refusal_names_columns_and_commonest_values_and_proposes_widths_that_work(table):
    with pytest.raises(DataError, match="State the width of noise") as refusal:
        table(columns=["a", "b"])
    assert "'a' (" in str(refusal.value) and re.search("'b' .*are 0", str(refusal.value))
    widths = str(refusal.value).rpartition("noise: [")[2].partition("]")[0]
    splits = table(columns=["a", "b"], noise=[float(width) for width in widths.split(",")])
    assert splits.noise == (True, True) and not splits.lattice


def test_entries_are_values_in_units_of_the_width_and_samples_return_to_the_units_of_the_file(table, store):
    splits = table(noise=[0.1, 0.01, 0.001, 1])
    assert splits.train.dtype == np.float64 and [lattice.step for lattice in splits.lattices] == [0.1, 0.01, 0.001, 1]
    first = np.loadtxt(store.root / "table.csv", delimiter=",", skiprows=1)[0]
    np.testing.assert_allclose(splits.train[0, :, 0] * [0.1, 0.01, 0.001, 1], first, rtol=1e-12)
    assert "stated width 0.1, 0.01, 0.001, 1; up to" in splits.description


def test_no_density_passes_the_floor_and_the_uniform_one_on_cells_reaches_it(table):
    """With noise of width w a density is at most 1/w, that of one which is uniform on [v, v + w)."""
    splits = table(columns=["b"], noise=0.25)
    pipeline = Pipeline(splits, DataRef(label="table", name="csv"), torch.float64)
    low, high = float(splits.train.min()) * 0.25, float(splits.train.max()) * 0.25
    assert pipeline.floor() == pytest.approx(math.log(2 * 0.25 / (high + 0.25 - low)))
    _, log_det = pipeline.prepare(pipeline.raw("test")[:8], torch.Generator().manual_seed(0))
    of_cells = pipeline.measures(-log_det, log_det)["nats_per_dim"]  # the density is 1 for each cell
    assert torch.allclose(of_cells, torch.full((8,), pipeline.floor(), dtype=torch.float64))


def test_the_density_of_values_with_noise_integrates_to_one(table):
    """A standard normal x: the density of v = value + noise, from x and log-det, over a fine grid of values."""
    splits = table(columns=["a"], noise=0.5)
    pipeline = Pipeline(splits, DataRef(label="table", name="csv"), torch.float64)
    grid = torch.linspace(-2000.0, 3000.0, 400_001, dtype=torch.float64)
    x, log_det = pipeline.preprocessing(grid.reshape(-1, 1, 1))
    density = torch.exp(-0.5 * x.flatten() ** 2 - 0.5 * math.log(2 * math.pi) + log_det)
    assert float(torch.trapezoid(density, grid)) == pytest.approx(1, abs=1e-6)
    noisy, _ = pipeline.prepare(torch.zeros(20_000, 1, 1, dtype=torch.float64), torch.Generator().manual_seed(1))
    cells = pipeline.preprocessing.inverse(noisy).flatten()
    assert 0 <= float(cells.min()) < 0.01 and 0.99 < float(cells.max()) < 1  # uniform over one width
    assert float(cells.mean()) == pytest.approx(0.5, abs=0.01)


def test_a_channel_without_noise_keeps_its_values_and_there_is_no_floor(table):
    splits = table(noise=[0.1, 0.01, None, 1])
    pipeline = Pipeline(splits, DataRef(label="table", name="csv"), torch.float64)
    values = pipeline.raw("train")[:50]
    v = pipeline.preprocessing.inverse(pipeline.prepare(values, torch.Generator().manual_seed(0))[0])
    moved = (v - values).abs().amax((0, 2))
    assert moved[2] < 1e-9 and (moved[[0, 1, 3]] > 0.5).all()
    assert pipeline.floor() is None and "channel 3" in splits.no_floor
    assert not any("'b'" in remark.text or "channel 1 " in remark.text for remark in examine(splits))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"columns": ["d"], "noise": 0.5}, ["0.5 is narrower than the step 1", "'d'"]),
        ({"columns": ["c"], "noise": 1e-8}, ["1e-08 is lost in float32", "'c'", "2^-20"]),
        ({"columns": ["b"], "step": 1e-8}, ["1e-08 is lost in float32", "`noise`"]),
    ],
)
def test_a_width_that_bounds_nothing_is_refused(table, options, named):
    with pytest.raises(DataError) as refusal:
        table(**options)
    assert all(text in str(refusal.value) for text in named)


@pytest.mark.parametrize("noise", [0, -1, "wide", [], [None], [0.1, 0.2, 0.3], float("inf"), True])
def test_an_odd_noise_is_a_fault_of_the_option(noise):
    faults = DATASETS["csv"]().option_errors({"file": "x.csv", "columns": ["a", "b"], "noise": noise})
    assert [name for name, _ in faults] == ["noise"]


def test_noise_and_step_exclude_each_other():
    options = {"file": "x.csv", "columns": ["a"], "step": 1, "noise": 1}
    assert [name for name, _ in DATASETS["csv"]().option_errors(options)] == ["noise"]
