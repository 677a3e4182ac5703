"""Splits in time with gaps, windows inside them, flat lines by their definition, and noise over the cells."""

import itertools

import numpy as np
import pytest

from harness.core.settings import NewSplit
from harness.datasets._signals.windows import (
    Stretch,
    fill_windows,
    flat_line_shares,
    samples,
    split_in_time,
    spread_over_cells,
    starts,
)


def recording(*spans):
    """Return stretches in which each sample is its index in the recording, plus 1,000,000 in channel 1."""
    return [Stretch(start, np.arange(start, stop) + np.array([[0], [1_000_000]])) for start, stop in spans]


def spans(stretches):
    return [(stretch.start, stretch.stop) for stretch in stretches]


def test_gaps_are_counted_in_time_and_fractions_in_valid_samples():
    # 500 valid samples; a hole of 70 lies right before the last 100, which are test.
    stretches = recording((0, 300), (310, 410), (480, 580))
    parts, _ = split_in_time(stretches, validation=0.2, test=0.2, gap=50)
    assert spans(parts["test"]) == [(480, 580)]
    assert spans(parts["validation"]) == [(310, 410)], "the hole is longer than the gap: nothing more is lost"
    assert spans(parts["train"]) == [(0, 260)], "10 of the 50 lie in the hole"


def test_held_out_parts_span_holes_and_keep_their_share():
    parts, _ = split_in_time(recording((0, 400), (450, 480), (490, 600)), validation=0.25, test=0.25, gap=10)
    total = 540
    assert spans(parts["test"]) == [(455, 480), (490, 600)] and samples(parts["test"]) == total // 4
    assert spans(parts["validation"]) == [(265, 400)] and samples(parts["validation"]) == total // 4
    assert spans(parts["train"]) == [(0, 255)]


def test_too_short_recordings_have_empty_parts():
    parts, _ = split_in_time(recording((0, 100)), validation=0.3, test=0.3, gap=60)
    assert [spans(part) for part in parts.values()] == [[], [(0, 10)], [(70, 100)]]
    parts, _ = split_in_time(recording((0, 100)), validation=0.3, test=0.3, gap=80)
    assert spans(parts["train"]) == spans(parts["validation"]) == []


# Any recording, and new splits of it closed to a ring


def times(stretches):
    """Return the samples of some stretches: each is its index in the recording."""
    return np.concatenate([stretch.values[0] for stretch in stretches])


def nearest(first, second):
    """Return the least distance in time between samples of one split and of another."""
    return int(np.abs(np.subtract.outer(times(first), times(second))).min())


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_parts_are_disjoint_ordered_and_separated_by_gaps(seed, new):
    rng = np.random.default_rng(seed)
    edges = np.cumsum(rng.integers(1, 200, 16)).reshape(8, 2)
    gap = int(rng.integers(0, 60))
    valid = np.concatenate([np.arange(*edge) for edge in edges])
    parts, share = split_in_time(recording(*edges), 0.2, 0.3, gap, NewSplit(seed) if new else None)
    if new:
        assert share == samples(parts["test"]) / len(valid)
    assert samples(parts["test"]) == round(0.3 * len(valid))
    everything = np.concatenate([times(part) for part in parts.values() if part])
    assert len(np.unique(everything)) == len(everything) and np.isin(everything, valid).all()
    last = -1
    for part in parts.values():
        for stretch in part:
            assert (np.diff(stretch.values[0]) == 1).all(), "a window would cross a hole, or the joint of the ring"
            assert new or stretch.start == stretch.values[0, 0]
            assert stretch.start > last
            last = stretch.stop - 1
    for first, second in (("train", "validation"), ("train", "test"), ("validation", "test")):
        if parts[first] and parts[second]:
            assert nearest(parts[first], parts[second]) > gap


def test_the_joint_of_the_ring_serves_as_a_gap():
    seeds = {NewSplit(seed): split_in_time(recording((0, 100)), 0.2, 0.3, 10, NewSplit(seed))[0] for seed in range(200)}
    lost = {100 - sum(map(samples, parts.values())) for parts in seeds.values()}
    assert lost == set(range(20, 31)), "three gaps, less what is left of one behind the joint"
    begins = {tuple(spans(parts["test"])) for parts in seeds.values()}
    assert len(begins) > 50, "test may be anywhere"
    joined = [parts for parts in seeds.values() if len(parts["test"]) == 2]
    assert joined and all(set(times(parts["test"])) >= {0, 99} for parts in joined)


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
    fill_windows(target, [(stretch.values, begins)])
    np.testing.assert_array_equal(target[:, 0], 100 + begins[:, None] + np.arange(16))
    np.testing.assert_array_equal(target[:, 1], target[:, 0] + 1_000_000)


def line_share(values, begin, length):
    shares = []
    for row in values:
        inside, first = [], 0
        for _, group in itertools.groupby(row):
            last = first + len(list(group))
            inside += [s for s in range(first, last) if last - first >= 15 and begin <= s < begin + length]
            first = last
        shares.append(len(inside) / length)
    return max(shares)


@pytest.mark.parametrize("seed", range(5))
def test_shares_match_the_definition(seed):
    rng = np.random.default_rng(seed)
    steps = rng.integers(-1, 2, (2, 600)) * (rng.random((2, 600)) < 0.1)
    values = np.cumsum(steps, axis=1).astype(np.int16)
    begins = np.array([0, 1, 100, 333, 536])
    expected = [line_share(values, begin, 64) for begin in begins]
    np.testing.assert_allclose(flat_line_shares(values, begins, 64), expected)
    assert any(expected)


def test_noise_fills_the_cell_and_depends_on_the_position():
    values = np.arange(-5000, 5000).reshape(2, 5000)
    spread = spread_over_cells(values, start=7)
    np.testing.assert_array_equal(np.floor(spread), values)
    noise = spread - values
    assert abs(noise.mean() - 0.5) < 0.01 and noise.min() < 0.01 and noise.max() > 0.99
    assert abs(np.corrcoef(noise)[0, 1]) < 0.05
    np.testing.assert_array_equal(spread, spread_over_cells(values, start=7))
    assert abs(np.corrcoef(noise[0], (spread_over_cells(values, 8) - values)[0])[0, 1]) < 0.05
