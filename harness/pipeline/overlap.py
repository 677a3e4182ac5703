"""Find events that others contain: equal events, and windows or images that share samples.

Equal events are found by a digest of each. Windows (C, L) of one recording and patches (C, H, W) of one image that
overlap have no event in common, but samples. Blocks of b or b x b neighbouring samples are taken from each held-out
event, every b/4 samples, and looked up by a rolling hash at every position of the other events. A block counts only if
it carries more information than a coincidence among all positions needs: b is chosen by the entropy of the values'
differences, and flat parts and padding are passed over. Two events overlap if, at the shift of such a block, most of
the samples that lie over each other, and of their information, are equal: beats of a heart may coincide for a while,
and then differ.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

AT_ONCE = 1 << 20  # entries that are hashed together
SAMPLE = 1 << 18  # entries from which the information of a value is estimated
MARGIN = 10.0  # bits beyond those of a coincidence
MOST_SURPRISE = 2.0  # times the entropy: the information of one value
SHORTEST = 8  # samples of a block
SHORTEST_SIDE = 3  # of a block of an image
INFORMATIVE = 0.25  # share of the places at which a block must carry information
ALIKE = 0.75  # share of the samples of two events over each other that are equal, if the events overlap
TRIES = 256  # pairs of events that are compared for each held-out event
PREFILTER = 24  # bits of a hash that are looked up in a table first
ORDERS_OF_WINDOWS = ((0, 0), (0, 1), (0, 2))  # of the differences of rows and columns that are tried
ORDERS_OF_IMAGES = ((0, 0), (0, 1), (1, 0), (1, 1))
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # of the generator splitmix64
_BASES = (0xD1342543DE82EF95, 0x9E3779B97F4A7C15)  # of rows and columns; odd, so that they have inverses modulo 2^64


def digests(events: np.ndarray) -> list[bytes]:
    """Return a digest of each event (N, *shape); equal events have equal ones."""
    return [
        hashlib.blake2b(event.data, digest_size=16).digest()
        for _, part in _parts(events)
        for event in part.reshape(len(part), -1).view(np.uint8)
    ]


def overlapping(held_out: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return whether each held-out event (N, C, *spatial) shares most samples with another one at some shift, (N,)."""
    if min(held_out.shape[2:]) <= (SHORTEST if held_out.ndim == 3 else SHORTEST_SIDE):
        return np.zeros(len(held_out), bool)
    return _Blocks(held_out, others).shared()


def _parts(events: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of about AT_ONCE entries, each with the number of its first event; -0.0 becomes 0.0."""
    size = max(1, AT_ONCE // max(1, math.prod(events.shape[1:])))
    for first in range(0, len(events), size):
        part = np.ascontiguousarray(events[first : first + size])
        yield first, part + 0.0 if part.dtype.kind == "f" else part


class _Blocks:
    """The informative blocks of held-out events (N, C, L) or (N, C, H, W), to be looked up in other events.

    Windows are taken for images of one row.
    """

    def __init__(self, held_out: np.ndarray, others: np.ndarray) -> None:
        self._held_out, self._others = (_in_plane(events) for events in (held_out, others))
        self._size = self._held_out.shape[2:]
        self._orders = ORDERS_OF_WINDOWS if self._size[0] == 1 else ORDERS_OF_IMAGES
        self._depends = self._orders[-1]  # on so many rows and columns before it
        self._statistics = list(map(self._statistics_of, self._orders))
        self._information = np.concatenate([self._information_of(part) for _, part in _parts(self._held_out)])
        positions = math.prod(self._size)
        self._needed = math.log2(len(others) * positions) + math.log2(len(held_out) * positions) + MARGIN
        self._block = self._smallest_block()
        self._begins = [
            np.arange(0, size - block + 1, max(1, block // 4))
            for size, block in zip(self._size, self._block, strict=True)
        ]

    def _smallest_block(self) -> list[int]:
        """Return the sides of the smallest block that is informative at a quarter of all places, or of the largest."""
        side, largest = SHORTEST if self._size[0] == 1 else SHORTEST_SIDE, 3 * max(self._size) // 4
        while True:
            block = [1 if size == 1 else min(side, 3 * size // 4) for size in self._size]
            if side >= largest or (self._sums(block) > self._needed).mean() >= INFORMATIVE:
                return block
            side += max(1, side // 4)

    def _sums(self, block: Sequence[int]) -> np.ndarray:
        """Return the information of blocks; the first differences of a block depend on samples before it."""
        inside = [side - before for side, before in zip(block, self._depends, strict=True)]
        return _block_sums(self._information.astype(np.float64), inside)

    def _statistics_of(self, order: tuple[int, int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the values of the differences of an order and -log2 of their frequencies, for each channel."""
        count = max(1, SAMPLE // math.prod(self._others.shape[1:]))
        differences = _differences(self._others[:: math.ceil(len(self._others) / count)], order)
        channels = []
        for channel in range(differences.shape[1]):
            distinct, counts = np.unique(differences[:, channel], return_counts=True)
            surprise = np.log2(counts.sum() / counts)
            # A rare value says less where it comes with the same neighbours, as in the beats of a heart.
            channels.append((distinct, np.minimum(surprise, MOST_SURPRISE * float(surprise @ counts / counts.sum()))))
        return channels

    def _information_of(self, events: np.ndarray) -> np.ndarray:
        """Return -log2 of the probability of each sample given those before it, (N, H, W) in float32.

        It is that by the order of differences which predicts the sample best, of the richest channel.
        """
        least = np.full((len(events), *self._size), np.inf, np.float32)
        for order, channels in zip(self._orders, self._statistics, strict=True):
            most = np.zeros_like(least)
            inner = most[:, order[0] :, order[1] :]
            differences = _differences(events, order)
            for channel, (values, bits) in enumerate(channels):
                column = differences[:, channel]
                places = np.searchsorted(values, column).clip(max=len(values) - 1)
                np.maximum(inner, np.where(values[places] == column, bits[places], bits.max()), out=inner)
            np.minimum(least, most, out=least)
        return least

    def shared(self) -> np.ndarray:
        """Return whether each held-out event overlaps another event, (N,)."""
        sums = self._sums(self._block)
        begins = np.ix_(np.arange(len(sums)), *map(np.add, self._begins, self._depends))
        owners, *blocks = np.nonzero(sums[begins] > self._needed)
        overlapping = np.zeros(len(sums), bool)
        if not len(owners):
            return overlapping
        rows, columns = np.ix_(*self._begins)
        hashes = np.concatenate([self._rolling(part)[:, rows, columns] for _, part in _parts(self._held_out)])
        wanted = hashes[owners, *blocks]
        order = wanted.argsort(kind="stable")
        wanted, owners = wanted[order], owners[order]
        begun = np.stack([each[block[order]] for each, block in zip(self._begins, blocks, strict=True)], axis=1)
        table = np.zeros(1 << PREFILTER, bool)
        table[wanted >> np.uint64(64 - PREFILTER)] = True
        tries = np.zeros(len(sums), int)
        for first, part in _parts(self._others):
            rolling = self._rolling(part)
            places = np.argwhere(table[rolling >> np.uint64(64 - PREFILTER)])
            met = rolling[tuple(places.T)]
            lefts = np.searchsorted(wanted, met).clip(max=len(wanted) - 1)
            for hit in np.flatnonzero(wanted[lefts] == met):
                event, *place = places[hit]
                for block in range(lefts[hit], np.searchsorted(wanted, met[hit], side="right")):
                    owner = owners[block]
                    if not overlapping[owner] and tries[owner] < TRIES:
                        tries[owner] += 1
                        overlapping[owner] = self._overlaps(owner, event + first, begun[block] - place)
        return overlapping

    def _overlaps(self, owner: int, other: int, shifts: np.ndarray) -> bool:
        """Return whether a held-out event that begins `shifts` samples before another one overlaps it."""
        pairs = list(zip(shifts.tolist(), self._size, strict=True))
        here = tuple(slice(max(0, shift), min(size, size + shift)) for shift, size in pairs)
        there = tuple(slice(max(0, -shift), min(size, size - shift)) for shift, size in pairs)
        equal = (self._held_out[owner][:, *here] == self._others[other][:, *there]).all(axis=0)
        information = self._information[owner][here]
        least = max(self._needed, ALIKE * float(information.sum()))
        return bool(equal.mean() >= ALIKE and information[equal].sum() > least)

    def _rolling(self, events: np.ndarray) -> np.ndarray:
        """Return the hash of the block at each position of events (N, C, H, W), (N, H - b + 1, W - b + 1)."""
        powers, inverses = self._powers
        codes = np.arange(256, dtype=np.uint64) if events.dtype == np.uint8 else _codes(events)
        for shift, factor in _MIX:  # splitmix64 of each entry
            codes = (codes + np.uint64(_BASES[1])) * np.uint64(factor)
            codes ^= codes >> np.uint64(shift)
        rows = np.zeros((len(events), *self._size), np.uint64)
        for channel in range(events.shape[1]):
            rows = rows * np.uint64(_BASES[0]) + (codes[events[:, channel]] if codes.ndim == 1 else codes[:, channel])
        sums = _block_sums(rows * powers, self._block)
        return sums * inverses[: sums.shape[1], : sums.shape[2]]

    @cached_property
    def _powers(self) -> tuple[np.ndarray, np.ndarray]:
        """The products of the powers of the bases, and of those of their inverses, modulo 2^64, (H, W) each."""
        made = []
        for exponent in (1, -1):
            rows, columns = (
                np.array([pow(pow(base, exponent, 1 << 64), k, 1 << 64) for k in range(size)], np.uint64)
                for base, size in zip(_BASES, self._size, strict=True)
            )
            made.append(rows[:, None] * columns)
        return made[0], made[1]


def _in_plane(events: np.ndarray) -> np.ndarray:
    """Return events (N, C, H, W); windows (N, C, L) get one row."""
    return events[:, :, None] if events.ndim == 3 else events


def _codes(events: np.ndarray) -> np.ndarray:
    """Return each entry as 64 bits; equal numbers have equal ones."""
    return events.astype(np.float64 if events.dtype.kind == "f" else np.int64).view(np.uint64)


def _differences(events: np.ndarray, order: tuple[int, int]) -> np.ndarray:
    """Return differences of these orders of rows and columns, of integers in int64."""
    values = events.astype(np.int64) if events.dtype.kind in "iu" else events
    return np.diff(np.diff(values, n=order[0], axis=2), n=order[1], axis=3)


def _block_sums(values: np.ndarray, block: Sequence[int]) -> np.ndarray:
    """Return the sum over the block that begins at each place of (N, H, W), (N, H - b + 1, W - b + 1)."""
    for axis, size in ((1, block[0]), (2, block[1])):
        if size > 1:
            sums = np.zeros([length + (number == axis) for number, length in enumerate(values.shape)], values.dtype)
            after, before = (sums[:, size:], sums[:, :-size]) if axis == 1 else (sums[..., size:], sums[..., :-size])
            np.cumsum(values, axis=axis, out=sums[:, 1:] if axis == 1 else sums[..., 1:])
            values = after - before
    return values
