"""Noise of a stated width bounds the density of any values, whether they lie on a lattice or not."""

import math
import re
from dataclasses import asdict

import numpy as np
import pytest
import torch

from harness.core.errors import DataError, UserError
from harness.core.settings import DataRef, NewSplit
from harness.datasets import find_dataset
from harness.datasets._values.encoding import written_digits
from harness.datasets.base import DATASETS
from harness.evaluation.evaluation import resolution_floor
from harness.pipeline.data_remarks import examine
from harness.pipeline.pipeline import Pipeline, ValueRange

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
    with pytest.raises(DataError, match=r"State the width of noise .* noise: last_digit, or noise: \[") as refusal:
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
    assert resolution_floor(pipeline) == pytest.approx(math.log(2 * 0.25 / (high + 0.25 - low)))
    _, log_det = pipeline.prepare(pipeline.raw("test")[:8], torch.Generator().manual_seed(0))
    of_cells = pipeline.measures(-log_det, log_det)["nats_per_dim"]  # the density is 1 for each cell
    assert torch.allclose(of_cells, torch.full((8,), resolution_floor(pipeline), dtype=torch.float64))


def test_a_channel_without_noise_keeps_its_values_and_there_is_no_floor(table):
    splits = table(noise=[0.1, 0.01, None, 1])
    pipeline = Pipeline(splits, DataRef(label="table", name="csv"), torch.float64)
    values = pipeline.raw("train")[:50]
    v = pipeline.preprocessing.inverse(pipeline.prepare(values, torch.Generator().manual_seed(0))[0])
    moved = (v - values).abs().amax((0, 2))
    assert moved[2] < 1e-9 and (moved[[0, 1, 3]] > 0.5).all()
    assert resolution_floor(pipeline) is None and "channel 3" in splits.no_floor
    assert not any("'b'" in remark.text or "channel 1 " in remark.text for remark in examine(splits))


@pytest.mark.parametrize(
    ("texts", "unit", "digits"),
    [
        (["5", "5.1", "12.3"], 0.1, 3),
        (["1.234", "12.34", "5", "-123.4"], 0.001, 4),
        (["0", "1200", "300"], 100, 2),
        (["0", "7e-9"], 1e-9, 1),
        (["1", "1000"], 1, 1),
        (["0.1", "0.30000000000000004"], 0.1, 1),
        (["0"], 1, 1),
    ],
)
def test_the_last_digit_is_read_from_the_numbers_of_a_column(texts, unit, digits):
    assert written_digits(np.array(texts, float)) == (unit, digits)


def test_noise_of_the_last_digit_is_as_wide_as_the_unit_of_each_value(table, store):
    """Column a has four digits over two decades: the unit is 0.001 below 10 and 0.01 from there on."""
    splits = table(noise="last_digit", shares=[0.5, 0.25, 0.25])
    assert splits.noise == (True,) * 4 and splits.digits[0] == 4 and splits.digits[3] == 1
    assert [lattice.step for lattice in splits.lattices][::3] == pytest.approx([0.001, 1])
    assert "unit of the last digit of each value, at least 0.001" in splits.description
    assert "in 2 columns at least 2^-20 of the range" in splits.description
    pipeline = Pipeline(splits, DataRef(label="table", name="csv"), torch.float64)
    values = pipeline.raw("test")[:]
    draws = [pipeline.prepare(values, torch.Generator().manual_seed(seed))[0] for seed in range(200)]
    drawn = torch.stack([pipeline.preprocessing.inverse(x) - values for x in draws])
    units = np.where(values[:, 0, 0] * 0.001 < 9.9999, 1.0, 10.0)
    widest = drawn[:, :, 0, 0].amax(0).numpy() / units
    assert drawn.min() >= -1e-9 and ((widest > 0.95) & (widest < 1)).all() and len({*units}) == 2
    assert (drawn[:, :, 1:].amax(0) < 1).all()
    assert resolution_floor(pipeline) == pytest.approx(pipeline.log_step + np.log(units).mean() / 4)
    assert resolution_floor(pipeline, "train") != pytest.approx(resolution_floor(pipeline), abs=1e-4)
    kept = ValueRange(**asdict(pipeline.values) | {"lattices": list(splits.lattices)})
    again = Pipeline(kept.as_splits(splits.shape), DataRef(label="table", name="csv"), torch.float64, values=kept)
    one = pipeline.prepare(values, torch.Generator().manual_seed(0))[0]
    assert torch.equal(again.prepare(values, torch.Generator().manual_seed(0))[0], one)


def test_the_last_digit_is_no_finer_than_a_lattice(table, store):
    (store.root / "half.csv").write_text("a\n" + "\n".join(f"{k * 0.25!r}" for k in range(40)))
    splits = table(file="half.csv", columns=["a"], noise="last_digit")
    assert [lattice.step for lattice in splits.lattices] == [0.25]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"columns": ["d"], "noise": 0.5}, ["0.5 is narrower than the step 1", "'d'"]),
        ({"columns": ["c"], "noise": 1e-8}, ["1e-08 is lost in float32", "'c'", "2^-20"]),
        ({"columns": ["b"], "step": 1e-8}, ["noise over the step 1e-08 is lost", "`noise`"]),
    ],
)
def test_a_width_that_bounds_nothing_is_refused(table, options, named):
    with pytest.raises(DataError) as refusal:
        table(**options)
    assert all(text in str(refusal.value) for text in named)


CLASS = """
import numpy as np

from harness.datasets import Dataset, DatasetInfo, Lattice, Splits


class Mine(Dataset):
    info = DatasetInfo(title="Mine", kind="sequence", lattice=False)
    def split_fault(self, options, keep_test=False):
        return None

    def shape(self, options):
        return (2, 3)

    def load(self, store, options):
        counts = np.random.default_rng(0).integers(0, 40, (90, 2, 3))
        lattices = (Lattice(5.0, 0.5), Lattice(0.0, 2.0))
        return Splits(counts[:50], counts[50:70], counts[70:], None, "mine", lattices=lattices)
"""


def test_every_data_set_without_levels_takes_noise_of_a_stated_width(store, tmp_path):
    """The widths are in the units of the source, whatever the entries are, and new splits have it once."""
    (tmp_path / "mine.py").write_text(CLASS)
    mine = find_dataset(f"{tmp_path}/mine.py:Mine")
    plain, splits = mine.loaded(store, {}), mine.loaded(store, {"noise": [1.0, 3]})
    assert splits.noise == (True, True) and not splits.lattice and splits.checksum != plain.checksum
    np.testing.assert_allclose(splits.test[:, 0] * 1.0, 5 + 0.5 * plain.test[:, 0])
    np.testing.assert_allclose(splits.test[:, 1] * 3.0, 2.0 * plain.test[:, 1])
    assert "uniform noise of the stated width 1, 3" in splits.description
    again = mine.loaded(store, {"noise": [1.0, 3]}, NewSplit(1))
    assert again.train.max() == pytest.approx(splits.train.max()) and not np.array_equal(again.train, splits.train)
    pipeline = Pipeline(splits, DataRef(label="mine", name="mine"))
    assert resolution_floor(pipeline) is not None and pipeline.dequantises
    with pytest.raises(DataError, match=r"noise = 0.4 is narrower than the step 0.5 .* of channel 0"):
        mine.loaded(store, {"noise": 0.4})
    with pytest.raises(UserError, match="3 are stated for 2 channels"):
        mine.loaded(store, {"noise": [1, 1, 1]})
    assert mine.option_errors({"noise": "last_digit"})[0][0] == "noise"
    waves = find_dataset("waveforms").loaded(store, {"noise": 4, "windows": 20})
    assert [lattice.step for lattice in waves.lattices] == [4, 4]
    wine = find_dataset("sklearn_tables").loaded(store, {"table": "wine", "noise": 10})
    assert {lattice.step for lattice in wine.lattices} == {10} and "of the stated width 10;" in wine.description
    assert find_dataset("digits").option_errors({"noise": 1})[0][1].startswith("digits: no option 'noise'")
    (tmp_path / "other.py").write_text(CLASS.replace('"mine", lat', '"mine", log_widths=(0.0,) * 3, lat'))
    with pytest.raises(UserError, match="that have none of their own; leave it out"):
        find_dataset(f"{tmp_path}/other.py:Mine").loaded(store, {"noise": 2})
