"""The scalings of values without levels: one unit of results, and the likelihood of rows in the units of their file."""

import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import nn

from harness.core.errors import UserError
from harness.core.settings import DataRef
from harness.datasets import Splits, Store, find_dataset
from harness.evaluation.evaluation import evaluate, nats_per_event
from harness.pipeline.pipeline import Pipeline, ValueRange

SCALINGS = ["scale", "standard", "asinh"]
HEAVY = np.random.default_rng(0).standard_t(1.5, (2000, 1, 1))


def pipeline(scaling, values=HEAVY, **facts):
    data = DataRef(label="t", name="t", preprocessing=scaling)
    splits = Splits(
        values[:1000], values[1000:1500], values[1500:], None, "t", lattice=values.dtype.kind == "i", **facts
    )
    return Pipeline(splits, data, torch.float64)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_one_density_has_one_result_in_every_scaling(scaling):
    """nats/dim are in the unit of the range, whatever x is."""
    made, plain = pipeline(scaling), pipeline("scale")
    v = torch.tensor(HEAVY[:50])
    expected = plain.measures(torch.zeros(50), torch.full((50,), -1.5))
    log_det = made.preprocessing(v)[1]
    measured = made.measures(-1.5 - log_det, log_det)  # the density of v is exp(-1.5)
    for unit, value in expected.items():
        assert torch.allclose(measured[unit], value)


@pytest.mark.parametrize("scaling", ["standard", "asinh"])
def test_statistics_are_of_training_alone_and_travel_with_weights(scaling):
    made = pipeline(scaling)
    changed = HEAVY.copy()
    changed[1000:] *= 50
    assert torch.equal(*(each.preprocessing(torch.ones(1, 1, 1))[0] for each in (made, pipeline(scaling, changed))))
    kept = ValueRange(**asdict(made.values))
    data = DataRef(label="t", name="t", preprocessing=scaling)
    again = Pipeline(kept.as_splits((1, 1)), data, torch.float64, values=kept)
    v = torch.tensor(HEAVY[:5])
    assert torch.equal(again.preprocessing(v)[0], made.preprocessing(v)[0])


def test_each_channel_may_have_its_own_scaling():
    """The map of each channel is that of the channel alone, and the log-determinants add up."""
    several = np.concatenate([HEAVY, HEAVY[::-1] * 3, HEAVY + 1, 2 - HEAVY], axis=1)
    chosen = ("asinh", "scale", "standard", "asinh")
    made = pipeline(chosen, several)
    v = torch.tensor(several[:9], requires_grad=True)
    x, log_det = made.preprocessing(v)
    alone = [pipeline(each, several[:, [at]]).preprocessing(v[:, [at]]) for at, each in enumerate(chosen)]
    assert torch.allclose(x, torch.cat([part for part, _ in alone], 1))
    assert torch.allclose(log_det, sum(part for _, part in alone))
    assert torch.allclose(made.preprocessing.inverse(x), v)
    [slopes] = torch.autograd.grad(x.sum(), v)
    assert torch.allclose(slopes.log().sum((1, 2)), log_det)
    kept = ValueRange(**asdict(made.values))
    data = DataRef(label="t", name="t", preprocessing=chosen)
    again = Pipeline(kept.as_splits((4, 1)), data, torch.float64, values=kept)
    assert torch.equal(again.preprocessing(v)[0], x)
    with pytest.raises(UserError, match="for each of 1 channels"):
        pipeline(chosen)


@pytest.mark.parametrize("scaling", ["standard", "asinh"])
def test_one_value_and_levels(scaling):
    x, log_det = pipeline(scaling, np.full((2000, 1, 1), 3.0)).prepare(torch.full((4, 1, 1), 3.0, dtype=torch.float64))
    assert x.isfinite().all() and log_det.isfinite().all()
    pixels = np.random.default_rng(0).integers(0, 256, (30, 1, 2, 2))
    with pytest.raises(UserError, match="with levels = 256; state one of"):
        Pipeline(Splits(pixels, pixels, pixels, 256, "p"), DataRef(label="p", name="p", preprocessing=scaling))


def test_heavy_tails_leave_the_bulk_its_width():
    """Scaled by the extremes, three quarters of the values lie in a hundredth of the interval."""
    widths = {}
    for scaling in SCALINGS:
        x, _ = pipeline(scaling).prepare(torch.tensor(HEAVY[:1000]))
        low, high = np.percentile(x.flatten(), [12.5, 87.5])
        widths[scaling] = high - low
    assert widths["scale"] < 0.1 and widths["asinh"] > 1.5


# Against numerical integration in one dimension

ROWS = 40 + 3 * np.random.default_rng(0).standard_t(2, 300)
NOISES = {
    "none": (ROWS.round(12), {}, 0.0),
    "lattice": (ROWS.round(1), {}, 0.1),
    "stated": (ROWS.round(1), {"noise": 0.7}, 0.7),
    "last_digit": ([float(f"{value:.3g}") for value in ROWS], {"noise": "last_digit"}, None),
}


class Narrow(nn.Module):
    """z = x / 0.3 - 1."""

    def terms(self, x):
        z = x.flatten(1) / 0.3 - 1
        prior = -0.5 * (z.square() + math.log(2 * math.pi)).sum(1)
        return prior, torch.full((len(x),), -math.log(0.3))


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("noise", NOISES)
def test_a_row_has_its_density_in_the_units_of_the_file(tmp_path, noise, scaling):
    column, options, width = NOISES[noise]
    (tmp_path / "t.csv").write_text("\n".join(["a", *map(repr, map(float, column))]))
    store, csv = Store.at(tmp_path, offline=True), find_dataset("csv")
    splits = csv.loaded(store, csv.located({"file": "t.csv", "shuffle": True, **options}, None, tmp_path))
    made = Pipeline(splits, DataRef(label="t", name="csv", preprocessing=scaling), torch.float64)
    result = evaluate(Narrow(), made, "test", 400, 64, 0, torch.float64)

    [lattice] = splits.lattices or [None]
    offset, step = (0.0, 1.0) if lattice is None else (lattice.offset, lattice.step)

    def z(y):
        scaled = made.preprocessing(torch.from_numpy((y - offset) / step).reshape(-1, 1, 1))[0]
        return scaled.flatten().numpy() / 0.3 - 1

    def density(y):  # by a finite difference, so that no log-determinant is used
        small = 1e-6
        return np.exp(-0.5 * z(y) ** 2) / math.sqrt(2 * math.pi) * (z(y + small) - z(y - small)) / (2 * small)

    ends = made.preprocessing.inverse(torch.tensor([[[-2.4]], [[3.0]]], dtype=torch.float64)).flatten().numpy()
    inner = np.sinh(np.linspace(-9, 9, 200_001)) / np.sinh(9)  # dense in the middle
    whole = ends.mean() + inner * np.ptp(ends) / 2
    assert np.trapezoid(density(offset + step * whole), offset + step * whole) == pytest.approx(1, abs=1e-3)

    low = offset + step * splits.test.flatten().astype(float)
    widths = {None: 10.0 ** (np.floor(np.log10(np.abs(low))) - 2)}.get(width, width) * np.ones(len(low))
    middles = (np.arange(200) + 0.5) / 200
    expected = np.mean(
        [-np.log(density(value + wide * middles)).mean() for value, wide in zip(low, widths, strict=True)]
    )
    assert nats_per_event(made, result.nats_per_dim) == pytest.approx(expected, abs=0.01)
