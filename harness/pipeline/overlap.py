"""Find events that others contain: equal events, and windows or images that share most of their samples.

Equal events are found by a digest of each. Windows (C, L) of one recording and patches (C, H, W) of one image that
overlap have no event in common, but samples, as have copies of which a few samples were changed, and mirrored or turned
ones. Blocks of b or b x b neighbouring samples are taken from each held-out event, every b/4 samples, and looked up by
a hash at every position of the other events. A block counts only if it carries more information than a coincidence
among all positions needs, and flat parts and padding carry none. Two events overlap if, at the shift of such a block,
most of the samples that lie over each other, and of their information, are equal: beats of a heart may coincide for a
while, and then differ.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

AT_ONCE = 1 << 20  # entries that are hashed together
SAMPLE = 1 << 18  # entries of other events from which the information of a sample is estimated
MARGIN = 10.0  # bits beyond those of a coincidence
SHORTEST = {3: 8, 4: 3}  # samples of the side of a block, of windows and of images
INFORMATIVE = 0.25  # share of the places at which a block must carry information
ALIKE = 0.75  # share of the samples of two events over each other that are equal, if the events overlap
TRIES = 256  # pairs of events that are compared for each held-out event


def digests(events: np.ndarray) -> list[bytes]:
    """Return a digest of each event (N, *shape); equal events have equal ones."""
    return [
        hashlib.blake2b(event.data, digest_size=16).digest()
        for _, part in _parts(events)
        for event in part.reshape(len(part), -1).view(np.uint8)
    ]


def overlapping(held_out: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return whether each held-out event (N, C, *spatial) shares most samples with another one at some shift, (N,).

    It may be mirrored or turned.
    """
    count, side = len(held_out), SHORTEST[held_out.ndim]
    if min(held_out.shape[2:]) <= side:
        return np.zeros(count, bool)
    forms = [held_out, held_out[..., ::-1]]
    if held_out.ndim == 4:
        forms += [form[..., ::-1, :] for form in forms]
        forms += [form.swapaxes(2, 3) for form in forms] if held_out.shape[2] == held_out.shape[3] else []
    else:  # windows are images of one row
        forms, others = [form[:, :, None] for form in forms], others[:, :, None]
    held_out = np.concatenate(forms)
    size, flags, tries = held_out.shape[2:], np.zeros(len(held_out), bool), np.zeros(len(held_out), int)
    needed = math.log2(len(others) * math.prod(size)) + math.log2(len(held_out) * math.prod(size)) + MARGIN
    information = _information(held_out, others)
    while True:  # until a block is informative at a quarter of all places
        block = [1 if length == 1 else min(side, 3 * length // 4) for length in size]
        informative = _block_sums(information, block, np.ones(max(size))) > needed
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
    return np.logical_or.reduce(flags.reshape(-1, count))


def _parts(events: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of about AT_ONCE entries, each with the number of its first event; -0.0 becomes 0.0."""
    size = max(1, AT_ONCE // max(1, math.prod(events.shape[1:])))
    for first in range(0, len(events), size):
        part = np.ascontiguousarray(events[first : first + size])
        yield first, part + 0.0 if part.dtype.kind == "f" else part


def _information(held_out: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the information of each held-out sample in bits, (N, H, W): 0 where it follows from its neighbours.

    Where its difference from the sample before, or of images the mixed one of rows and columns, is not 0 it is the
    collision entropy -log2 sum p^2 of the differences that are not 0, of the richest channel.
    """
    some = others[:: math.ceil(len(others) / max(1, SAMPLE // math.prod(others.shape[1:])))]
    most = np.zeros((len(held_out), *held_out.shape[2:]))
    for channel in np.moveaxis(np.concatenate([held_out, some]), 1, 0):
        values = channel.astype(np.int64) if channel.dtype.kind in "iu" else channel
        if values.shape[1] > 1:
            values = np.diff(values, axis=1, prepend=values[:, :1])
        values = np.diff(values, axis=2, prepend=values[:, :, :1])
        counts = np.unique(values[values != 0], return_counts=True)[1]
        if len(counts):
            bits = -2 * math.log2(float(np.linalg.norm(counts / counts.sum())))
            np.maximum(most, bits * (values[: len(held_out)] != 0), out=most)
    return most


def _common_blocks(
    held_out: np.ndarray, others: np.ndarray, block: list[int], informative: np.ndarray
) -> Iterator[tuple[int, int, list[int], list[int]]]:
    """Yield a held-out event, another one with a block in common, and where it begins in the former and the latter.

    Only blocks that begin at an `informative` place, (N, H - b + 1, W - b + 1), every b/4 samples, are looked up.
    """
    step = [max(1, side // 4) for side in block]
    begun = np.argwhere(informative[:, :: step[0], :: step[1]]) * [1, *step]
    wanted = np.concatenate([_hashes(part, block) for _, part in _parts(held_out)])[tuple(begun.T)]
    order = wanted.argsort(kind="stable")
    begun, wanted = begun[order], wanted[order]
    for first, part in _parts(others if len(wanted) else others[:0]):
        hashes = _hashes(part, block)
        lefts, rights = (np.searchsorted(wanted, hashes, side=side) for side in ("left", "right"))
        for other, *place in np.argwhere(lefts < rights).tolist():
            for event, *begin in begun[lefts[other, *place] : rights[other, *place]].tolist():
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
