"""Splits in time with gaps, and windows inside them."""

import numpy as np
import pytest

from harness.datasets._signals.wfdb_records import Stretch
from harness.datasets._signals.windows import fill_windows, samples, split_in_time, starts


def recording(*spans):
    """Return stretches in which each sample is its index in the recording, plus 1,000,000 in channel 1."""
    return [Stretch(start, np.arange(start, stop) + np.array([[0], [1_000_000]])) for start, stop in spans]


def spans(stretches):
    return [(stretch.start, stretch.stop) for stretch in stretches]


def test_test_is_last_validation_precedes_it_and_gaps_reduce_train():
    parts = split_in_time(recording((0, 1000)), validation=0.2, test=0.1, gap=30)
    assert {name: spans(part) for name, part in parts.items()} == {
        "train": [(0, 640)],
        "validation": [(670, 870)],
        "test": [(900, 1000)],
    }


def test_gaps_are_counted_in_time_and_fractions_in_valid_samples():
    # 500 valid samples; a hole of 70 lies right before the last 100, which are test.
    stretches = recording((0, 300), (310, 410), (480, 580))
    parts = split_in_time(stretches, validation=0.2, test=0.2, gap=50)
    assert spans(parts["test"]) == [(480, 580)]
    assert spans(parts["validation"]) == [(310, 410)], "the hole is longer than the gap: nothing more is lost"
    assert spans(parts["train"]) == [(0, 260)], "10 of the 50 lie in the hole"


def test_held_out_parts_span_holes_and_keep_their_share():
    parts = split_in_time(recording((0, 400), (450, 480), (490, 600)), validation=0.25, test=0.25, gap=10)
    total = 540
    assert spans(parts["test"]) == [(455, 480), (490, 600)] and samples(parts["test"]) == total // 4
    assert spans(parts["validation"]) == [(265, 400)] and samples(parts["validation"]) == total // 4
    assert spans(parts["train"]) == [(0, 255)]


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_disjoint_ordered_and_separated_by_gaps(seed):
    rng = np.random.default_rng(seed)
    edges = np.cumsum(rng.integers(1, 200, 16)).reshape(8, 2)
    gap = int(rng.integers(0, 100))
    parts = split_in_time(recording(*edges), validation=0.2, test=0.3, gap=gap)
    last = None
    valid = {int(sample) for first, stop in edges for sample in range(first, stop)}
    for name in ("train", "validation", "test"):
        held = [int(value) for stretch in parts[name] for value in stretch.values[0]]
        assert held == sorted(held) and set(held) <= valid
        for stretch in parts[name]:
            np.testing.assert_array_equal(stretch.values[0], np.arange(stretch.start, stretch.stop))
        if held and last is not None:
            assert held[0] - last > gap
        last = held[-1] if held else last
    assert samples(parts["test"]) == round(0.3 * len(valid))


def test_too_short_recordings_have_empty_parts():
    parts = split_in_time(recording((0, 100)), validation=0.3, test=0.3, gap=60)
    assert {name: spans(part) for name, part in parts.items()} == {
        "train": [],
        "validation": [(0, 10)],
        "test": [(70, 100)],
    }
    parts = split_in_time(recording((0, 100)), validation=0.3, test=0.3, gap=80)
    assert spans(parts["train"]) == spans(parts["validation"]) == []


@pytest.mark.parametrize(
    ("count", "stride", "begins"), [(100, 32, [0, 32, 64]), (96, 32, [0, 32, 64]), (95, 32, [0, 32]), (31, 8, [])]
)
def test_windows_begin_at_the_first_sample_and_end_inside(count, stride, begins):
    [stretch] = recording((7, 7 + count))
    assert starts(stretch, 32, stride).tolist() == begins


@pytest.mark.parametrize("stride", [1, 16])
def test_windows_are_slices_of_the_stretch(stride):
    [stretch] = recording((100, 5200))  # more than are copied at a time, with a stride of 1
    begins = starts(stretch, 16, stride)
    target = np.full((len(begins), 2, 16), -1)
    fill_windows(target, stretch.values, begins)
    np.testing.assert_array_equal(target[:, 0], 100 + begins[:, None] + np.arange(16))
    np.testing.assert_array_equal(target[:, 1], target[:, 0] + 1_000_000)


def test_windows_may_be_selected_in_any_order():
    [stretch] = recording((0, 100))
    target = np.zeros((3, 2, 8), dtype=int)
    fill_windows(target, stretch.values, np.array([50, 3, 92]))
    assert target[:, 0, 0].tolist() == [50, 3, 92] and target[2, 0, -1] == 99
