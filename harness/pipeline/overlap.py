"""Find events that others contain: equal events, and windows or images that share samples.

Equal events are found by a digest of each. Windows (C, L) of one recording and patches (C, H, W) of one image that
overlap have no event in common, but samples. Blocks of b or b x b neighbouring samples are taken from each held-out
event, every b/4 samples, and looked up by a hash at every position of the other events. A block counts only if it
carries more information than a coincidence among all positions needs: b is chosen by the entropy of the values'
differences, and flat parts and padding are passed over. Two events overlap if, at the shift of such a block, most of
the samples that lie over each other, and of their information, are equal: beats of a heart may coincide for a while,
and then differ.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

AT_ONCE = 1 << 20  # entries that are hashed together
SAMPLE = 1 << 18  # entries of other events from which the information of a value is estimated
MARGIN = 10.0  # bits beyond those of a coincidence
MOST_SURPRISE = 2.0  # times the entropy: the information of one value
SHORTEST = 8  # samples of a block
SHORTEST_SIDE = 3  # of a block of an image
INFORMATIVE = 0.25  # share of the places at which a block must carry information
ALIKE = 0.75  # share of the samples of two events over each other that are equal, if the events overlap
TRIES = 256  # pairs of events that are compared for each held-out event
PREFILTER = np.uint64(24)  # bits of a hash that are looked up in a table first
ORDERS_OF_WINDOWS = ((0, 0), (0, 1), (0, 2))  # of the differences of rows and columns that are tried
ORDERS_OF_IMAGES = ((0, 0), (0, 1), (1, 0), (1, 1))


def digests(events: np.ndarray) -> list[bytes]:
    """Return a digest of each event (N, *shape); equal events have equal ones."""
    return [
        hashlib.blake2b(event.data, digest_size=16).digest()
        for _, part in _parts(events)
        for event in part.reshape(len(part), -1).view(np.uint8)
    ]


def overlapping(held_out: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return whether each held-out event (N, C, *spatial) shares most samples with another one at some shift, (N,)."""
    shortest, orders = (SHORTEST, ORDERS_OF_WINDOWS) if held_out.ndim == 3 else (SHORTEST_SIDE, ORDERS_OF_IMAGES)
    flags = np.zeros(len(held_out), bool)
    if min(held_out.shape[2:]) <= shortest:
        return flags
    if held_out.ndim == 3:  # windows are images of one row
        held_out, others = held_out[:, :, None], others[:, :, None]
    size, tries = held_out.shape[2:], np.zeros(len(held_out), int)
    needed = math.log2(len(others) * math.prod(size)) + math.log2(len(held_out) * math.prod(size)) + MARGIN
    information = _information(held_out, others, orders)
    side = shortest
    while True:  # until a block is informative at a quarter of all places
        block = [1 if length == 1 else min(side, 3 * length // 4) for length in size]
        rows, columns = orders[-1]  # on so many before it the first differences of a block depend
        sums = _block_sums(information, [block[0] - rows, block[1] - columns], np.ones(max(size)))
        informative = sums[:, rows:, columns:] > needed
        if side >= 3 * max(size) // 4 or informative.mean() >= INFORMATIVE:
            break
        side += max(1, side // 4)
    for event, other, begin, place in _common_blocks(held_out, others, block, informative):
        if not flags[event] and tries[event] < TRIES:
            tries[event] += 1
            pairs = [(b - p, length) for b, p, length in zip(begin, place, size, strict=True)]
            here = tuple(slice(max(0, shift), min(length, length + shift)) for shift, length in pairs)
            there = tuple(slice(max(0, -shift), min(length, length - shift)) for shift, length in pairs)
            equal = (held_out[event][:, *here] == others[other][:, *there]).all(axis=0)
            bits = information[event][here]
            flags[event] = equal.mean() >= ALIKE and bits[equal].sum() > max(needed, ALIKE * float(bits.sum()))
    return flags


def _parts(events: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of about AT_ONCE entries, each with the number of its first event; -0.0 becomes 0.0."""
    size = max(1, AT_ONCE // max(1, math.prod(events.shape[1:])))
    for first in range(0, len(events), size):
        part = np.ascontiguousarray(events[first : first + size])
        yield first, part + 0.0 if part.dtype.kind == "f" else part


def _information(held_out: np.ndarray, others: np.ndarray, orders: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Return -log2 of the probability of each held-out sample given those before it, (N, H, W).

    It is that by the order of differences which predicts the sample best, of the richest channel.
    """
    some = others[:: math.ceil(len(others) / max(1, SAMPLE // math.prod(others.shape[1:])))]
    values = np.concatenate([held_out, some])
    values = values.astype(np.int64) if values.dtype.kind in "iu" else values
    least = np.full((len(held_out), *held_out.shape[2:]), np.inf)
    for rows, columns in orders:
        most = np.zeros_like(least)
        for channel in np.moveaxis(np.diff(np.diff(values, n=rows, axis=2), n=columns, axis=3), 1, 0):
            _, places, counts = np.unique(channel, return_inverse=True, return_counts=True)
            bits = np.log2(counts.sum() / counts)
            # A rare value says less where it comes with the same neighbours, as in the beats of a heart.
            bits = np.minimum(bits, MOST_SURPRISE * float(bits @ counts / counts.sum()))
            inner = most[:, rows:, columns:]
            np.maximum(inner, bits[places].reshape(channel.shape)[: len(held_out)], out=inner)
        least = np.minimum(least, most)
    return least


def _common_blocks(
    held_out: np.ndarray, others: np.ndarray, block: list[int], informative: np.ndarray
) -> Iterator[tuple[int, int, list[int], list[int]]]:
    """Yield a held-out event, another one with a block in common, and where it begins in the former and the latter.

    Only blocks that begin at an `informative` place, (N, H - b + 1, W - b + 1), every b/4 samples, are looked up.
    """
    step = [max(1, side // 4) for side in block]
    hashes = np.concatenate([_hashes(part, block) for _, part in _parts(held_out)])
    begun = np.argwhere(informative[:, :: step[0], :: step[1]]) * [1, *step]
    wanted = hashes[tuple(begun.T)]
    order = wanted.argsort(kind="stable")
    begun, wanted = begun[order], wanted[order]
    table = np.zeros(1 << int(PREFILTER), bool)
    table[wanted >> (np.uint64(64) - PREFILTER)] = True
    for first, part in _parts(others):
        hashes = _hashes(part, block)
        places = np.argwhere(table[hashes >> (np.uint64(64) - PREFILTER)])
        met = hashes[tuple(places.T)]
        lefts, rights = (np.searchsorted(wanted, met, side=side) for side in ("left", "right"))
        for hit in np.flatnonzero(lefts < rights):
            other, *place = places[hit].tolist()
            for event, *begin in begun[lefts[hit] : rights[hit]].tolist():
                yield event, first + other, begin, place


def _hashes(events: np.ndarray, block: list[int]) -> np.ndarray:
    """Return the hash of the block at each place of events (N, C, H, W), (N, H - b + 1, W - b + 1)."""
    factors = np.random.default_rng(0).integers(1 << 63, size=max(*events.shape, 2), dtype=np.uint64) * np.uint64(2)
    factors += np.uint64(1)  # odd, so that no bit is lost
    codes = events.astype(np.float64 if events.dtype.kind == "f" else np.int64).view(np.uint64) * factors[0]
    codes ^= codes >> np.uint64(32)  # the low bits of floating-point numbers are often 0
    return _block_sums(np.einsum("nchw,c->nhw", codes, factors[: events.shape[1]]), block, factors)


def _block_sums(values: np.ndarray, block: list[int], factors: np.ndarray) -> np.ndarray:
    """Return the sums over the block at each place of (N, H, W), weighted by factors of its rows and of its columns."""
    for axis, side in enumerate(block, start=1):
        values = np.einsum("...i,i->...", sliding_window_view(values, side, axis=axis), factors[:side])
    return values
