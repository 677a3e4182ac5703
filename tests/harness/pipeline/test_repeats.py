"""Values that are said to be continuous and repeat or lie on a lattice: of all, of a channel or a part of it."""

import numpy as np
import pytest

from harness.pipeline.data_remarks import repeated_values

RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(400, 2, 48)).astype(np.float32)
COUNTS = RNG.integers(0, 200, (400, 1, 48))


def changed(change) -> np.ndarray:
    values = VALUES.copy()
    change(values)
    return values


def where(part) -> np.ndarray:
    """Return values of which those of a part of the second channel are 0."""
    return changed(lambda values: values[:, 1].__setitem__(part, 0))


FAULTS = {
    "all on a lattice": ((np.rint(VALUES * 4) / 4)[:, :1], "b lies on a lattice of step 0.25"),
    "float64 with an offset": (COUNTS * 0.1 + 7.3, "b lies on a lattice of step 0.1"),
    "one channel on a lattice": (
        np.concatenate([VALUES[:, :1], np.rint(VALUES[:, 1:] * 1000) / 1000], 1),
        "b lies on a lattice of step 0.001",
    ),
    "padded": (where(np.s_[:, 30:]), r"38% of the values of b occur more than once (38% are 0)"),
    "one constant entry": (where(np.s_[:, 5]), "2% of the values of b"),
    "a constant column": (where(np.s_[:])[:, :, :1], "100% of the values of b"),
    "padded in some events": (where(np.s_[::5, 40:]), "% of the values of b"),
    "clipped": (np.minimum(VALUES, 1), "% are 1)"),
    "the last value repeated": (
        changed(lambda values: values[:, 1].__setitem__(np.s_[:, 40:], values[:, 1, 39:40])),
        "19% of the values of b",
    ),
    "standardised by entry": ((COUNTS - COUNTS.mean(0)) / COUNTS.std(0), "% of the values of b"),
    "not finite": (changed(lambda values: values[:, 1].__setitem__(3, np.nan))[:9], "not finite"),
    "half precision": (VALUES.astype(np.float16).astype(np.float32), "% of the values of b"),
    "a column of a table": (np.round(RNG.gamma(2, size=(3000, 1, 1)), 2), "b lies on a lattice of step 0.01"),
    "zeros in a column": (np.maximum(RNG.normal(size=(3000, 1, 1)), 0), "% are 0)"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_values_that_repeat_are_found(name):
    values, text = FAULTS[name]
    clauses = repeated_values(values, ["a", "b"][-values.shape[1] :])
    assert text in clauses[-1], clauses


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_continuous_values_do_not_repeat(dtype):
    windows = np.lib.stride_tricks.sliding_window_view(RNG.normal(size=4000).cumsum(), 64)[::8, None].astype(dtype)
    for values in (VALUES, windows, RNG.random((5000, 6, 1)), RNG.standard_cauchy((3000, 3, 1)), VALUES[:10]):
        assert repeated_values(values.astype(dtype), ["a"] * values.shape[1]) == []
