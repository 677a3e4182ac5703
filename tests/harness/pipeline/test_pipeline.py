"""Preparation of data: exact inverse, fresh dequantisation noise, and the resolution floor."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.core.settings import DataRef
from harness.datasets import Splits, Store, find_dataset
from harness.evaluation.evaluation import resolution_floor
from harness.pipeline.pipeline import Pipeline, permutation

STORE = Store(root=None, cache=Path("no-cache"), offline=True)  # nothing installed needs either
SMALL = {"digits": {}, "patches": {"train": 50}, "waveforms": {"windows": 20, "patients": 2, "length": 64}}
CASES = [("digits", "scale"), ("digits", "logit"), ("patches", "scale"), ("patches", "logit"), ("waveforms", "scale")]


def reference(name: str, **changes) -> DataRef:
    return DataRef(label=name, name=name, **changes)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def splits() -> dict[str, Splits]:
    return {name: find_dataset(name).load(STORE, options) for name, options in SMALL.items()}


def images(levels: int, values: np.ndarray) -> Splits:
    return Splits(train=values, validation=values, test=values, levels=levels, description="")


def sequences(train: np.ndarray, test: np.ndarray, lattice: bool = True) -> Splits:
    return Splits(train=train, validation=test, test=test, levels=None, description="", lattice=lattice)


@pytest.mark.parametrize("permute", [None, 3])
@pytest.mark.parametrize(("name", "preprocessing"), CASES)
def test_the_round_trip_is_exact(name, preprocessing, permute, splits):
    data = reference(name, preprocessing=preprocessing, permute=permute)
    exact = Pipeline(splits[name], data, dtype=torch.float64)
    trained = Pipeline(splits[name], data)
    for part, values in splits[name].parts().items():
        raw = exact.raw(part)[:]
        np.testing.assert_array_equal(raw.numpy(), values)
        x, log_det = exact.prepare(raw, generator())
        assert x.shape == raw.shape and x.dtype == torch.float64
        assert log_det.shape == (len(raw),) and log_det.dtype == torch.float64
        back = exact.to_data(x)
        assert back.dtype == values.dtype
        np.testing.assert_array_equal(back, values)
        # float32 rounds only values within 1e-6 of the edge of their cell into the next cell.
        single, same = trained.prepare(raw, generator())
        assert single.dtype == torch.float32
        torch.testing.assert_close(single, x.float(), rtol=0, atol=0)
        torch.testing.assert_close(same, log_det, rtol=0, atol=0)
        off = np.abs(trained.to_data(single).astype(int) - values)
        assert off.max() <= 1 and off.mean() < 1e-3


@pytest.mark.parametrize("name", SMALL)
def test_all_splits_share_one_permutation_of_all_entries(name, splits):
    plain, permuted = (Pipeline(splits[name], reference(name, permute=seed)) for seed in (None, 7))
    order = permutation(plain.dim, 7)
    assert sorted(order.tolist()) == list(range(plain.dim))
    assert order.tolist() == permutation(plain.dim, 7).tolist() != permutation(plain.dim, 8).tolist()
    for part in ("train", "validation", "test"):
        raw = plain.raw(part)[:]
        x, log_det = plain.prepare(raw, generator())
        moved, same = permuted.prepare(raw, generator())
        torch.testing.assert_close(moved.flatten(1), x.flatten(1)[:, order], rtol=0, atol=0)
        assert torch.equal(log_det, same)
    channels = order // math.prod(plain.shape[1:])
    for channel in range(plain.shape[0]):  # entries of every channel reach every channel
        block = channels.reshape(plain.shape[0], -1)[channel]
        assert set(block.tolist()) == set(range(plain.shape[0]))
    assert resolution_floor(permuted) == resolution_floor(plain)


def test_a_permutation_per_seed_is_that_of_the_trials_seed(splits):
    data = reference("digits", permute="per-seed")
    for seed in (0, 7):
        order = Pipeline(splits["digits"], data, seed=seed).permutation.tolist()
        assert order == permutation(64, seed).tolist()
        fixed = Pipeline(splits["digits"], reference("digits", permute=7), seed=seed)
        assert (order == fixed.permutation.tolist()) == (seed == 7)
    with pytest.raises(ValueError, match="digits: permute: per-seed depends on the seed of a trial; give that seed"):
        Pipeline(splits["digits"], data)


@pytest.mark.parametrize(("name", "preprocessing"), CASES)
def test_noise_is_fresh_and_fills_the_whole_cell(name, preprocessing, splits):
    pipeline = Pipeline(splits[name], reference(name, preprocessing=preprocessing), dtype=torch.float64)
    raw = pipeline.raw("train")[:]
    draws = generator()
    first, second = (pipeline.prepare(raw, draws)[0] for _ in range(2))
    assert (first != second).all()
    assert torch.equal(first, pipeline.prepare(raw, generator())[0])
    noise = torch.stack([pipeline.preprocessing.inverse(x) - raw for x in (first, second)])
    assert noise.min() > -1e-9 and noise.max() < 1 + 1e-9
    assert noise.min() < 0.01 and noise.max() > 0.99
    assert noise.mean() == pytest.approx(0.5, abs=0.02)
    assert noise.std() == pytest.approx(1 / math.sqrt(12), abs=0.01)
    assert torch.corrcoef(noise.flatten(1))[0, 1].abs() < 0.05


@pytest.mark.parametrize("levels", [17, 256])
@pytest.mark.parametrize("preprocessing", ["scale", "logit"])
def test_uniform_density_over_all_levels_costs_log2_levels(levels, preprocessing):
    values = np.random.default_rng(0).integers(0, levels, (20, 1, 4, 4), dtype=np.uint8)
    data = reference("uniform", preprocessing=preprocessing, permute=2)
    pipeline = Pipeline(images(levels, values), data, dtype=torch.float64)
    x, log_det = pipeline.prepare(pipeline.raw("test")[:], generator())
    if preprocessing == "scale":
        log_prob = torch.full((20,), -pipeline.dim * math.log(2), dtype=torch.float64)  # uniform on [-1, 1)
    else:
        # p = sigmoid(x) uniform on (margin, 1 - margin): the density of x is p (1 - p) / (1 - 2 margin)
        densities = torch.nn.functional.logsigmoid(x) + torch.nn.functional.logsigmoid(-x) - math.log1p(-2e-6)
        log_prob = densities.flatten(1).sum(1)
    measures = pipeline.measures(log_prob, log_det)
    assert measures["bits_per_dim"].numpy() == pytest.approx(math.log2(levels), rel=1e-9)
    assert measures["nats_per_dim"].numpy() == pytest.approx(math.log(2), rel=1e-9)


def test_the_floor_of_sequences_is_the_mean_log_step_and_is_attained():
    train = np.stack([np.arange(1024), np.arange(1024) // 4 + 100], axis=0).astype(np.int16)[None]
    pipeline = Pipeline(sequences(train, train[:, :, :]), reference("adc"), dtype=torch.float64)
    floor = (math.log(2 / 1024) + math.log(2 / 256)) / 2
    assert pipeline.unit == "nats_per_dim"
    assert resolution_floor(pipeline) == pytest.approx(floor, rel=1e-12)
    # The best possible density is uniform over the cells of the data and zero elsewhere.
    _, log_det = pipeline.prepare(pipeline.raw("test")[:], generator())
    best = pipeline.measures(-log_det, log_det)
    assert best["nats_per_dim"].numpy() == pytest.approx(floor, rel=1e-12)
    assert best["bits_per_dim"].numpy() == pytest.approx(0.0, abs=1e-12)
    ten_bits = np.broadcast_to(np.arange(1024, dtype=np.int16), (1, 2, 1024))
    adc = Pipeline(sequences(ten_bits, ten_bits), reference("adc"))
    assert resolution_floor(adc) == pytest.approx(-6.24, abs=0.005)


@pytest.mark.parametrize("levels", [17, None])
def test_filtered_data_have_no_floor(levels):
    values = np.random.default_rng(1).integers(0, 17, (5, 2, 8), dtype=np.int16)
    splits = Splits(values, values, values, levels=levels, description="")
    assert resolution_floor(Pipeline(splits, reference("plain"))) is not None
    filtered = replace(splits, no_floor="a band-pass filter")
    pipeline = Pipeline(filtered, reference("filtered"))
    assert resolution_floor(pipeline) is None and pipeline.dequantises


def test_data_off_a_lattice_have_no_floor_and_no_noise():
    values = np.random.default_rng(1).standard_normal((5, 2, 8))
    pipeline = Pipeline(sequences(values, values, lattice=False), reference("real"), dtype=torch.float64)
    x, _ = pipeline.prepare(pipeline.raw("train")[:], generator())
    assert resolution_floor(pipeline) is None
    assert (x.amin((0, 2)), x.amax((0, 2))) == (pytest.approx(-1), pytest.approx(1))
    np.testing.assert_allclose(pipeline.to_data(x), values)


def test_sequences_are_scaled_by_the_training_range_of_each_channel(splits):
    train, test = splits["waveforms"].train, splits["waveforms"].test
    pipeline, moved = (
        Pipeline(sequences(train, held_out), reference("waveforms"), dtype=torch.float64)
        for held_out in (test, 3 * test)
    )
    raw = pipeline.raw("train")[:]
    x, _ = pipeline.prepare(raw, generator())
    assert torch.equal(x, moved.prepare(raw, generator())[0])
    for channel in range(2):
        assert -1 <= x[:, channel].min() < -0.99
        assert 0.99 < x[:, channel].max() < 1
    outside, _ = moved.prepare(moved.raw("test")[:], generator())
    assert outside.max() > 1
    np.testing.assert_array_equal(moved.to_data(outside), 3 * test)


def test_samples_outside_the_range_are_clamped():
    values = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    far = torch.tensor([-9.0, -1.0, 0.999, 9.0, math.inf, -math.inf, 0.0, 0.0]).repeat(2).reshape(1, 1, 4, 4)
    pixels = Pipeline(images(17, values), reference("digits")).to_data(far)
    assert pixels.ravel()[:7].tolist() == [0, 0, 16, 16, 16, 0, 8]
    assert Pipeline(images(17, values), reference("d", preprocessing="logit")).to_data(100 * far).max() == 16
    train = np.arange(8, dtype=np.int16).reshape(1, 2, 4)
    adc = Pipeline(sequences(train, train), reference("adc")).to_data(torch.full((1, 2, 4), 1e9))
    assert adc.dtype == np.int16 and (adc == 32767).all()
    assert Pipeline(sequences(train, train), reference("adc")).to_data(torch.full((1, 2, 4), math.nan)).max() == 0


def test_batches_do_not_share_memory_with_the_splits():
    values = np.zeros((2, 1, 4, 4), dtype=np.uint8)
    pipeline = Pipeline(images(17, values), reference("digits"))
    for chosen in (slice(None), torch.arange(2)):
        pipeline.raw("train")[chosen].fill_(5)
    assert values.max() == 0
