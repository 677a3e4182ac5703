"""Find values that are said to be continuous and are not: constant, repeated, or on a lattice.

A density on them can grow without bound, as it can put mass on single values. Overlapping windows share values, so
these are compared within one event, and between events at one entry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from harness.datasets._values.encoding import MOST_REPEATED
from harness.datasets._values.lattice import FEWEST, find_lattice

VALUES = 1 << 21  # of the training events, evenly spread, that are examined
MOST_EVENTS = 2048
ENTRIES = 16  # of each channel that are examined for a lattice of their own
SAME = 1e-7  # difference of values that count as one, as a share of the interquartile range of the channel


def repeated_values(events: np.ndarray, labels: Sequence[str]) -> list[str]:
    """Return a clause for each channel, named by its label, of events (N, C, *spatial) whose values repeat."""
    count = min(MOST_EVENTS, max(FEWEST, VALUES // math.prod(events.shape[1:])))
    some = np.asarray(events[:: math.ceil(len(events) / count)])
    some = some.reshape(*some.shape[:2], -1)
    clauses = (_clause(some[:, channel]) for channel in range(some.shape[1]))
    return [f"{label} {clause}" for label, clause in zip(labels, clauses, strict=True) if clause is not None]


def _clause(values: np.ndarray) -> str | None:
    """Return what repeats in the values (n, L) of a channel; None if nothing does."""
    entries = values.shape[1]
    if not np.isfinite(values).all():
        return "has values that are not finite"
    lattice = find_lattice(np.unique(values), values.dtype, values.size)
    if lattice is not None:
        return f"lies on a lattice of step {lattice.step:.6g}"
    low, high = np.percentile(values, [25, 75])
    least = SAME * (high - low)
    by_entry = np.sort(values, axis=0)
    ties = _ties(by_entry, least)
    constant = np.flatnonzero(by_entry[-1] - by_entry[0] <= least)
    if len(constant) and len(values) > 1:
        some = f" at {len(constant):,} of {entries:,} entries, the first at {constant[0]}"
        return f"has one value{some * (len(constant) < entries)} in training"
    repeated = np.flatnonzero(ties.sum(axis=0) > max(MOST_REPEATED * len(values), FEWEST))
    if len(repeated):
        places = f" at {len(repeated):,} of {entries:,} entries" * (entries > 1)
        return f"has values{places} of which {ties[:, repeated].mean():.0%} occur in several events"
    if entries > 1 and (share := _ties(np.sort(values, axis=1).T, least).mean()) > MOST_REPEATED:
        return f"has values of which {share:.0%} occur more than once in their event"
    for entry in range(0, entries, math.ceil(entries / ENTRIES)):
        if (lattice := find_lattice(np.unique(by_entry[:, entry]), values.dtype, len(values))) is not None:
            return f"lies on a lattice of step {lattice.step:.6g} at entry {entry}"
    return None


def _ties(ascending: np.ndarray, least: float) -> np.ndarray:
    """Return whether each value differs by at most `least` from another in its column of ascending values (n, L)."""
    equal, none = np.diff(ascending, axis=0) <= least, np.zeros((1, ascending.shape[1]), bool)
    return np.concatenate([equal, none]) | np.concatenate([none, equal])
