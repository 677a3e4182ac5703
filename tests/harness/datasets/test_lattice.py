"""Lattices of values: detection, refusal, and the check of every value."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.core.errors import DataError
from harness.datasets._values.encoding import choose_encoding
from harness.datasets._values.lattice import SAMPLE, Lattice, Survey, find_lattice, stated_lattice

COUNTS = np.random.default_rng(0).integers(0, 256, 5000)
ADC = np.random.default_rng(1).integers(-2048, 2048, 20_000)
SIXTEEN = np.random.default_rng(2).integers(0, 65_536, 50_000)


def find(values: np.ndarray) -> Lattice | None:
    return find_lattice(np.unique(values), values.dtype, values.size)


def survey_of(events: np.ndarray, blocks: int = 1) -> Survey:
    survey = Survey(events.shape[1], events.dtype, events[:, 0].size)
    for block in np.array_split(events, blocks):
        survey.add(block)
    return survey


def encoded(events: np.ndarray, kind: str = "image", step=None) -> np.ndarray:
    return choose_encoding("x", survey_of(events), kind, step).encode(events, np.arange(len(events)))


ON_A_LATTICE = {
    "pixels over 255": (COUNTS, COUNTS / 255, 1 / 255),
    "pixels over 255 in float32": (COUNTS, (COUNTS / 255).astype("f4"), 1 / 255),
    "pixels over 255 in float32, then float64": (COUNTS, (COUNTS / 255).astype("f4").astype("f8"), 1 / 255),
    "pixels over 256": (COUNTS, (COUNTS / 256).astype("f4"), 1 / 256),
    "pixels from -1 to 1, computed in float32": (COUNTS, COUNTS.astype("f4") / np.float32(127.5) - 1, 1 / 127.5),
    "pixels normalised in float32": (
        COUNTS,
        (COUNTS.astype("f4") / np.float32(255) - np.float32(0.485)) / np.float32(0.229),
        1 / 255 / 0.229,
    ),
    "12-bit converter": (ADC, ADC * 0.0005, 0.0005),
    "12-bit converter in float32": (ADC, (ADC * 0.0502).astype("f4"), 0.0502),
    "12-bit converter with a baseline, in float32": (ADC, (80 + ADC * 0.0502).astype("f4"), 0.0502),
    "16 bits in float32": (SIXTEEN, (SIXTEEN / 65_535).astype("f4"), 1 / 65_535),
    "tiny steps": (ADC, ADC * 1e-12, 1e-12),
    "no two neighbours": (np.tile([0, 6, 16, 31, 37], 9), np.tile([0, 6, 16, 31, 37], 9) * 0.013, 0.013),
    "two values": (np.tile([0, 1], 5), np.tile([0.1, 0.7], 5), 0.6),
}


@pytest.mark.parametrize("name", ON_A_LATTICE)
def test_the_coarsest_lattice_is_found_with_the_original_counts(name):
    counts, values, step = ON_A_LATTICE[name]
    lattice = find(values)
    assert lattice is not None
    assert lattice.step == pytest.approx(step, rel=1e-6)
    k, off = lattice.index(values)
    assert not off.any()
    np.testing.assert_array_equal(k - k.min(), counts - counts.min())


OFF_ANY_LATTICE = {
    "normal": np.random.default_rng(0).normal(size=50_000),
    "normal, float32": np.random.default_rng(0).normal(size=50_000).astype("f4"),
    "few normals, float32": np.random.default_rng(0).normal(size=12).astype("f4"),
    "uniform, float32": np.random.default_rng(0).random(50_000, dtype="f4"),
    "gamma-corrected": (COUNTS / 255) ** 2.2,
    "gamma-corrected, float32": ((COUNTS / 255) ** 2.2).astype("f4"),
    "logarithms": np.log1p(COUNTS),
    "too few to tell": np.array([0.0, 0.25, 1.0]),
    "a constant": np.full(50, 0.5),
}


@pytest.mark.parametrize("name", OFF_ANY_LATTICE)
def test_values_on_no_lattice_are_detected(name):
    assert find(OFF_ANY_LATTICE[name]) is None


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_lattices_of_any_step_and_offset_are_found(dtype):
    """The counts fill a third of their range; float32 rounding is below a sixteenth of a step."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        levels = int(rng.integers(2, 40_000))
        step, offset = np.exp(3 * rng.normal()), rng.choice([0.0, 0.3, 7.0])
        counts = rng.integers(0, levels, max(levels // 3, 40))
        lattice = find((step * (offset + counts)).astype(dtype))
        assert lattice is not None, (seed, levels, step, offset)
        true = step * np.gcd.reduce(np.diff(np.unique(counts)))
        assert lattice.step == pytest.approx(true, rel=1e-5), (seed, levels, step, offset)


def test_counts_start_at_the_value_zero_where_that_is_a_lattice_point():
    lattice = Lattice(0.3, 0.1, 1e-9)
    assert lattice.counted_from_zero(0.3, 0.9, 16) == Lattice(0.0, 0.1, 1e-9)
    assert lattice.counted_from_zero(0.3, 0.9, 9).offset == pytest.approx(0.3)  # 0.9 would be the tenth level
    assert Lattice(-0.3, 0.1, 1e-9).counted_from_zero(-0.3, 0.9, 16).offset == pytest.approx(-0.3)
    assert Lattice(-0.3, 0.1, 1e-9).counted_from_zero(-0.3, 0.9, None).offset == 0.0
    assert Lattice(0.05, 0.1, 1e-9).counted_from_zero(0.05, 0.95, None).offset == pytest.approx(0.05)


def test_values_that_arithmetic_has_rounded_are_encoded():
    for low, high, step in ((1300, 8700, 1e-3), (99_000, 100_400, 1e-5)):
        for seed in range(30):
            rng = np.random.default_rng(seed)
            values = rng.integers(low, high, (200, 1, 1)) * step
            values += rng.integers(-1, 2, values.shape) * np.spacing(values)
            assert encoded(values, "sequence").dtype.kind == "i", (low, seed)


def test_a_stated_step_may_have_few_digits_but_not_too_few():
    values = COUNTS / 255
    for step, fits in ((0.003921569, True), (0.00392, False), (0.0039, False), (1 / 254, False)):
        lattice = stated_lattice(step, 0.0, 1.0, values.dtype)
        assert lattice.index(values)[1].any() == (not fits), step
    assert stated_lattice(1e-7, 0.0, 1.0, np.dtype("f4")) is None  # float32 cannot represent this step


def test_a_survey_in_blocks_equals_one_of_all_values():
    events = np.random.default_rng(0).normal(size=(400, 2, 600)).astype("f4")
    whole, blocks = survey_of(events), survey_of(events, 7)
    for name in ("low", "high", "divisor", "count"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(blocks, name))
    np.testing.assert_array_equal(whole.low, events.min((0, 2)))
    assert whole.distinct() is None and blocks.distinct(0) is None  # more than are kept
    few = np.round(events, 2)
    whole, blocks = survey_of(few), survey_of(few, 7)
    np.testing.assert_array_equal(whole.distinct(), np.unique(few))
    np.testing.assert_array_equal(blocks.distinct(1), np.unique(few[:, 1]))
    integers = np.random.default_rng(0).integers(-50, 50, (40, 2, 6)) * np.array([[6], [10]]) + 3
    assert survey_of(integers, 7).divisor.tolist() == [6, 10]
    unlike = np.array([0, 4, 8, 0, 6, 12]).reshape(6, 1, 1)
    assert survey_of(unlike, 2).divisor.tolist() == [2]


def test_repeats_are_measured_on_a_spread_sample():
    values = np.arange(4 * SAMPLE, dtype="f8").reshape(-1, 1, 64)
    assert survey_of(values, 5).repeated(0)[0] == 0
    values[: len(values) // 2] = 1.5
    for blocks in (1, 5):
        assert survey_of(values, blocks).repeated(0)[:2] == (pytest.approx(0.5, abs=0.01), 1.5)


def images(values: np.ndarray, channels: int = 2) -> np.ndarray:
    return values[: len(values) // (channels * 16) * channels * 16].reshape(-1, channels, 4, 4)


def test_floating_point_pixels_become_their_counts():
    pixels = images(COUNTS)
    for values in (pixels / 255, (pixels / 255).astype("f4")):
        encoding = choose_encoding("x", survey_of(values), "image", None)
        assert (encoding.levels, encoding.dtype) == (256, np.uint8)
        np.testing.assert_array_equal(encoding.encode(values, np.arange(len(values))), pixels)
    np.testing.assert_array_equal(encoded(pixels / 127.5 - 1), pixels)


def test_pixels_that_were_normalised_by_channel_have_a_lattice_each():
    pixels = images(COUNTS)
    scale, mean = np.array([0.229, 0.225]).reshape(1, 2, 1, 1), np.array([0.485, 0.406]).reshape(1, 2, 1, 1)
    values = ((pixels / 255 - mean) / scale).astype("f4")
    np.testing.assert_array_equal(encoded(values), pixels)


def test_a_channel_with_few_values_does_not_get_a_coarser_lattice():
    pixels = images(COUNTS)
    pixels[:, 1] = pixels[:, 1] // 2 * 2
    np.testing.assert_array_equal(encoded((pixels / 255).astype("f4")), pixels)


def test_integers_are_reduced_by_their_common_divisor():
    counts = images(COUNTS // 16)
    np.testing.assert_array_equal(encoded((counts * 16).astype(np.int16)), counts)
    eight_bits = (counts * 16).astype(np.uint8)
    for step in ("detect", (16.0,)):
        encoding = choose_encoding("x", survey_of(eight_bits), "image", step)
        assert encoding.levels == 16
        np.testing.assert_array_equal(encoding.encode(eight_bits, np.arange(len(eight_bits))), counts)
    sequence = COUNTS.reshape(-1, 2, 50) * np.array([[6], [10]]) + 1
    np.testing.assert_array_equal(encoded(sequence, "sequence") * [[6], [10]] % [[6], [10]], 0)
    back = encoded(sequence, "sequence") * [[6], [10]]
    np.testing.assert_array_equal(
        back - back.min((0, 2), keepdims=True), sequence - sequence.min((0, 2), keepdims=True)
    )


@pytest.mark.parametrize(
    ("largest", "dtype"), [(30_000, np.int16), (40_000, np.int32), (3 * 10**9, np.int64), (2**52, np.int64)]
)
def test_sequences_keep_every_integer(largest, dtype):
    values = np.array([-1, 0, 1, largest]).reshape(1, 1, 4)
    result = encoded(values, "sequence")
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, values)


NORMALS = np.random.default_rng(0).normal(size=(500, 2, 100))


@pytest.mark.parametrize(
    ("values", "kind", "step", "message"),
    [
        (images((COUNTS / 255) ** 2.2), "image", None, r"x: values occur more than once in channel 0 \(100%"),
        (np.clip(NORMALS, -1, 1), "sequence", None, r"channel 0 \(3\d%; 1\d% are -1\)"),
        ((images(COUNTS) / 255).astype("f2"), "image", None, "were converted in several ways"),
        (np.stack([ADC[:500], NORMALS[:, 0, 0]], 1)[..., None], "sequence", None, "channel 0 lies on a lattice"),
        (NORMALS * [[1], [0]], "sequence", None, "channel 1 has the one value 0; leave it out"),
        (images(COUNTS) / 255, "image", (1 / 254,), r"event \d+: .* is not a multiple of the step"),
        ((images(COUNTS) / 255).astype("f4"), "image", (1e-7,), "the step 1e-07 is lost in the rounding of"),
        (images(COUNTS).astype("i2"), "image", (2.0,), r"event 0: \d+ is not a multiple of the step 2"),
        (images(COUNTS).astype("i4") * 999 + images(COUNTS, 2) % 7, "image", None, "images have 2 to 65536"),
        (np.zeros((4, 1, 2, 2), "i2"), "image", None, "the values span 1 levels"),
        (images(COUNTS) * 1e-320, "image", None, "value of channel 0 is 2.*e-318; it must be"),
        (np.array([[[1e308, -1e308, 0]]]), "sequence", None, "is 1e.308; it must be between 1e-100 and 1e.100"),
        (np.array([[[-(2**60), 1]]]), "sequence", None, r"integers from -1152921504606846976 .*at most 2\^53"),
    ],
)
def test_values_that_cannot_be_encoded_are_named(values, kind, step, message):
    with pytest.raises(DataError, match=message):
        encoded(values, kind, step)


FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64)


@settings(derandomize=True, max_examples=60, deadline=None, database=None)
@given(
    st.lists(FLOATS | st.sampled_from([0.0, 1.0, 1e-320, 5e-324, 1e308, -1e308]), min_size=1, max_size=12),
    st.sampled_from(["f4", "f8"]),
    st.sampled_from(["image", "sequence"]),
    st.none() | st.just("detect") | st.tuples(st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
)
def test_any_finite_values_are_encoded_or_refused_with_a_message(values, dtype, kind, step):
    with np.errstate(over="ignore"):
        events = np.array(values, dtype).reshape(-1, 1, *((1, 1) if kind == "image" else (1,)))
    assume(np.isfinite(events).all())
    try:
        assert encoded(events, kind, step).shape == events.shape
    except DataError as error:
        assert str(error).startswith("x: ")
