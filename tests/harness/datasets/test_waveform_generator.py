"""The waveform generator: its signals have the properties of pulse waveforms."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from harness.datasets import Store, find_dataset
from harness.datasets.waveforms import ABP, ABP_STEP, GAP, LEVELS, PPG, RATE, simulate

STORE = Store(root=None, cache=Path("no-cache"), offline=True)  # nothing installed needs either

SECONDS = 300


def patient(seed: int, seconds: int = SECONDS) -> tuple[np.ndarray, np.ndarray]:
    return simulate(np.random.Generator(np.random.PCG64(seed)), round(seconds * RATE))


@pytest.fixture(scope="module", params=[0, 1, 2, 3])
def recording(request) -> tuple[np.ndarray, np.ndarray]:
    return patient(request.param)


def test_recording_is_ten_bit_integers_that_never_saturate(recording):
    adc, _ = recording
    assert adc.dtype == np.int16
    assert adc.shape == (2, SECONDS * RATE)
    assert adc.min() > 0
    assert adc.max() < LEVELS - 1
    assert len(np.unique(adc[PPG])) > 300
    assert len(np.unique(adc[ABP])) > 200


def beat_extremes(signal: np.ndarray, onsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the maximum of each whole beat, and the minimum before its onset."""
    starts = np.round(onsets[(onsets > 1) & (onsets < len(signal) / RATE - 2)] * RATE).astype(int)
    peaks = [signal[a:b].max() for a, b in pairwise(starts)]
    feet = [signal[a - 12 : a + 12].min() for a in starts[:-1]]
    return np.array(peaks), np.array(feet)


def test_blood_pressure_is_in_the_range_of_adults_at_rest(recording):
    adc, onsets = recording
    systolic, diastolic = (edges * ABP_STEP for edges in beat_extremes(adc[ABP].astype(float), onsets))
    assert 85 < systolic.mean() < 160
    assert 50 < diastolic.mean() < 95
    assert 30 < (systolic - diastolic).mean() < 65
    assert 1.0 < systolic.std() < 15.0


def test_patients_differ_and_repeat_exactly():
    np.testing.assert_array_equal(patient(5, 20)[0], patient(5, 20)[0])
    assert (patient(5, 20)[0] != patient(6, 20)[0]).mean() > 0.9


def test_splits_follow_each_other_in_time_with_a_gap():
    windows, length = 20, 50
    splits = find_dataset("waveforms").load(STORE, {"windows": windows, "length": length, "patients": 1, "seed": 3})
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([3, 0])))
    adc, _ = simulate(rng, windows * length + 2 * GAP)
    begins = (0, 16 * length + GAP, 18 * length + 2 * GAP)
    for values, start in zip(splits.parts().values(), begins, strict=True):
        joined = values.swapaxes(0, 1).reshape(2, -1)
        np.testing.assert_array_equal(joined, adc[:, start : start + joined.shape[1]])
    assert GAP / RATE == 30
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (16, 2, 2)


def test_waveform_options_have_their_effects():
    default = find_dataset("waveforms").load(STORE, {})
    assert default.train.shape == (1600, 2, 256)
    assert default.validation.shape == default.test.shape == (200, 2, 256)
    assert find_dataset("waveforms").shape({"length": 1024}) == (2, 1024)
    assert default.levels is None and default.unit == "nats_per_dim"
    assert "not patient data" in default.description
    assert "not patient data" in find_dataset("waveforms").info.title
    small = {"windows": 10, "patients": 1}
    reseeded = find_dataset("waveforms").load(STORE, {**small, "seed": 1})
    assert (find_dataset("waveforms").load(STORE, small).train != reseeded.train).mean() > 0.9
