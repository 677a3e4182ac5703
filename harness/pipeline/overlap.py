"""Find held-out events that a model has seen in training: equal events, and windows that share samples.

Equal events are found by a digest of each. Windows (C, L) of one recording that overlap have no event in common, but
samples. Blocks of b consecutive samples are taken from each held-out window, every b/4 samples, and looked up by a
rolling hash at every position of the other windows. A block counts only if it carries more information than a
coincidence among all positions needs: b is chosen by the entropy of the values' differences, and flat lines and padding
are passed over. Two windows overlap if, at the shift of such a block, most of the samples that lie over each other are
equal: beats of a heart may coincide for a while, and then differ.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

AT_ONCE = 1 << 20  # entries that are hashed together
SAMPLE = 1 << 18  # entries from which the information of a value is estimated
MARGIN = 10.0  # bits beyond those of a coincidence
MOST_SURPRISE = 2.0  # times the entropy: the information of one value
SHORTEST = 8  # samples of a block
ALIKE = 0.75  # share of the samples of two windows over each other that are equal, if the windows overlap
TRIES = 256  # pairs of windows that are compared for each held-out window
PREFILTER = 22  # bits of a hash that are looked up in a table first
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # of the generator splitmix64
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64


@dataclass(frozen=True)
class Overlap:
    """The numbers of events of a held-out split that another split has as well."""

    equal: int  # events that equal one of the other split
    sharing: int  # windows that are not equal to one, and overlap one
    total: int  # all events of the held-out split

    @property
    def share(self) -> float:
        """The share of the held-out events that are equal or overlap."""
        return (self.equal + self.sharing) / self.total


def find_overlap(held_out: np.ndarray, others: np.ndarray) -> Overlap:
    """Return how many held-out events (N, C, *spatial) equal other events or, as windows (N, C, L), overlap them."""
    equal = _equal(held_out, others)
    sharing = 0
    if held_out.ndim == 3 and held_out.shape[2] > SHORTEST:
        sharing = int(_Blocks(held_out, others).shared(~equal).sum())
    return Overlap(int(equal.sum()), sharing, len(held_out))


def _parts(events: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of about AT_ONCE entries, each with the number of its first event; -0.0 becomes 0.0."""
    size = max(1, AT_ONCE // max(1, math.prod(events.shape[1:])))
    for first in range(0, len(events), size):
        part = np.ascontiguousarray(events[first : first + size])
        yield first, part + 0.0 if part.dtype.kind == "f" else part


def _digests(events: np.ndarray) -> Iterator[bytes]:
    for _, part in _parts(events):
        for event in part.reshape(len(part), -1).view(np.uint8):
            yield hashlib.blake2b(event.data, digest_size=16).digest()


def _equal(held_out: np.ndarray, others: np.ndarray) -> np.ndarray:
    wanted = list(_digests(held_out))
    there = set(wanted).intersection(_digests(others))
    return np.array([digest in there for digest in wanted], bool)


class _Blocks:
    """The informative blocks of held-out windows (N, C, L), to be looked up in other windows."""

    def __init__(self, held_out: np.ndarray, others: np.ndarray) -> None:
        self._held_out, self._others = held_out, others
        self._order, self._values, self._bits = self._statistics()
        self._information = self._information_of(held_out)
        size = held_out.shape[2]
        self._needed = math.log2(others.shape[0] * size) + math.log2(len(held_out) * size) + MARGIN
        mean = max(float(self._information.mean()), 1e-9)
        self._length = min(max(math.ceil(1.25 * self._needed / mean), SHORTEST), 3 * size // 4)
        self._begins = np.arange(0, size - self._length + 1, max(1, self._length // 4))

    def _statistics(self) -> tuple[int, list[np.ndarray], list[np.ndarray]]:
        """Return the order of the differences with the least entropy, their values and -log2 of their frequencies."""
        count = max(1, SAMPLE // math.prod(self._others.shape[1:]))
        sample = self._others[:: math.ceil(len(self._others) / count)]
        candidates = []
        for order in range(3):
            values, bits, entropy = [], [], 0.0
            differences = _differences(sample, order)
            for channel in range(sample.shape[1]):
                distinct, counts = np.unique(differences[:, channel], return_counts=True)
                values.append(distinct)
                surprise = np.log2(counts.sum() / counts)
                mean = float(surprise @ counts / counts.sum())
                # A rare value says less where it comes with the same neighbours, as in the beats of a heart.
                bits.append(np.minimum(surprise, MOST_SURPRISE * mean))
                entropy += mean
            candidates.append((entropy, order, values, bits))
        return min(candidates, key=lambda each: each[0])[1:]

    def _information_of(self, events: np.ndarray) -> np.ndarray:
        """Return -log2 of the probability of each sample given those before it, (N, L): that of the richest channel."""
        most = np.zeros((len(events), events.shape[2]))
        differences = _differences(events, self._order)
        for channel, (values, bits) in enumerate(zip(self._values, self._bits, strict=True)):
            column = differences[:, channel]
            places = np.searchsorted(values, column).clip(max=len(values) - 1)
            information = np.where(values[places] == column, bits[places], bits.max())
            np.maximum(most[:, self._order :], information, out=most[:, self._order :])
        return most

    def shared(self, asked: np.ndarray) -> np.ndarray:
        """Return whether each held-out window, of those that are asked about, overlaps another window, (N,)."""
        sums = np.pad(self._information.cumsum(axis=1), ((0, 0), (1, 0)))
        # The first differences of a block depend on samples before it.
        informative = sums[:, self._begins + self._length] - sums[:, self._begins + self._order] > self._needed
        owners, blocks = np.nonzero(informative & asked[:, None])
        overlapping = np.zeros(len(asked), bool)
        if not len(owners):
            return overlapping
        hashes = np.concatenate([self._rolling(part)[:, self._begins] for _, part in _parts(self._held_out)])
        wanted = hashes[owners, blocks]
        order = wanted.argsort(kind="stable")
        wanted, owners, begins = wanted[order], owners[order], self._begins[blocks[order]]
        table = np.zeros(1 << PREFILTER, bool)
        table[wanted >> np.uint64(64 - PREFILTER)] = True
        tries = np.zeros(len(asked), int)
        for first, part in _parts(self._others):
            rolling = self._rolling(part)
            places = np.argwhere(table[rolling >> np.uint64(64 - PREFILTER)])
            met = rolling[places[:, 0], places[:, 1]]
            lefts, rights = np.searchsorted(wanted, met), np.searchsorted(wanted, met, side="right")
            for hit in np.flatnonzero(rights > lefts):
                window, place = places[hit]
                for block in range(lefts[hit], rights[hit]):
                    owner = owners[block]
                    if not overlapping[owner] and tries[owner] < TRIES:
                        tries[owner] += 1
                        overlapping[owner] = self._overlaps(owner, int(window) + first, int(begins[block] - place))
        return overlapping

    def _overlaps(self, owner: int, window: int, shift: int) -> bool:
        """Return whether a held-out window that begins `shift` samples before another one overlaps it."""
        size = self._held_out.shape[2]
        first, last = max(0, shift), min(size, size + shift)
        equal = (self._held_out[owner, :, first:last] == self._others[window, :, first - shift : last - shift]).all(
            axis=0
        )
        return bool(equal.mean() >= ALIKE and self._information[owner, first:last] @ equal > self._needed)

    def _rolling(self, events: np.ndarray) -> np.ndarray:
        """Return the hash of the block at each position of windows (N, C, L), (N, L - b + 1)."""
        powers, inverses = self._powers
        codes = events.astype(np.float64 if events.dtype.kind == "f" else np.int64).view(np.uint64)
        rows = np.zeros((len(events), events.shape[2]), np.uint64)
        for channel in range(events.shape[1]):  # splitmix64 of each entry, chained over the channels
            rows = (rows ^ codes[:, channel]) + np.uint64(_BASE)
            for shift, factor in _MIX:
                rows = (rows ^ (rows >> np.uint64(shift))) * np.uint64(factor)
            rows ^= rows >> np.uint64(31)
        sums = np.zeros((len(rows), rows.shape[1] + 1), np.uint64)
        np.cumsum(rows * powers, axis=1, out=sums[:, 1:])
        return (sums[:, self._length :] - sums[:, : -self._length]) * inverses[: sums.shape[1] - self._length]

    @cached_property
    def _powers(self) -> tuple[np.ndarray, np.ndarray]:
        """The powers of the base and of its inverse, modulo 2^64, (L,) each."""
        count, inverse = self._held_out.shape[2], pow(_BASE, -1, 1 << 64)
        made = [np.array([pow(base, k, 1 << 64) for k in range(count)], np.uint64) for base in (_BASE, inverse)]
        return made[0], made[1]


def _differences(events: np.ndarray, order: int) -> np.ndarray:
    """Return differences of this order in time, (N, C, L - order), of integers in int64."""
    values = events.astype(np.int64) if events.dtype.kind in "iu" else events
    return np.diff(values, n=order, axis=2)
