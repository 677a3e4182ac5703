"""Values that are said to be continuous and repeat or lie on a lattice: of all, of a channel, an entry or an event."""

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
    "padded": (where(np.s_[:, 30:]), "b has one value at 18 of 48 entries, the first at 30 in training"),
    "one constant entry": (where(np.s_[:, 5]), "b has one value at 1 of 48 entries, the first at 5"),
    "a constant column": (where(np.s_[:])[:, :, :1], "b has one value in training"),
    "padded in some events": (where(np.s_[::5, 40:]), "b has values at 8 of 48 entries of which 20%"),
    "clipped": (np.minimum(VALUES, 1), "b has values at 48 of 48 entries"),
    "nearly padded": (where(np.s_[:, 40:]) + np.float64(1e-11) * VALUES, "b has one value at 8 of 48 entries"),
    "the last value repeated": (
        changed(lambda values: values[:, 1].__setitem__(np.s_[:, 40:], values[:, 1, 39:40])),
        "b has values of which 19% occur more than once in their event",
    ),
    "standardised by entry": ((COUNTS - COUNTS.mean(0)) / COUNTS.std(0), "b has values at 48 of 48 entries"),
    "fine steps of each entry": (RNG.integers(0, 60_000, (300, 1, 48)) * RNG.uniform(1, 2, 48) / 7, "at entry 0"),
    "not finite": (changed(lambda values: values[:, 1].__setitem__(3, np.nan)), "b has values that are not finite"),
    "half precision": (VALUES.astype(np.float16).astype(np.float32), "b has values at"),
    "a column of a table": (np.round(RNG.gamma(2, size=(3000, 1, 1)), 2), "b lies on a lattice of step 0.01"),
    "zeros in a column": (np.maximum(RNG.normal(size=(3000, 1, 1)), 0), "b has values of which 5"),
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
