"""Find events that others repeat: equal events, events nearly equal, and windows or images that share samples."""

from __future__ import annotations

import hashlib
import itertools
import math

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

DIMENSIONS = NEIGHBOURS = 64  # of the projection; k
FEWEST, MOST = 32, 50_000  # events among which neighbours are sought
CHANCE = 1e-7  # that an event without duplicates has one, from the estimated dimension
NEAR = 1 / 3  # of the distance to the k th neighbour
LEAST_VARIANCE = 1e-3  # of a direction, as a share of the mean: the noise of rare entries is not enlarged further
AT_ONCE = 1 << 22  # entries that are projected together
HASHED = 1 << 18  # entries that are hashed together
MARGIN = 10.0  # bits of a shared block beyond those of a coincidence
RARE = 0.05  # of blocks that count, for which all others are not hashed
PREFIX = np.uint64(48)  # the other bits of a hash, 16, are looked up in a table first


def digests(events: np.ndarray) -> list[bytes]:
    """Return a digest of each event (N, *shape); equal events have equal ones, and 0.0 equals -0.0."""
    return [hashlib.blake2b((event + 0).tobytes(), digest_size=16).digest() for event in np.asarray(events)]


def nearly_equal(queries: np.ndarray, events: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Return whether each query (Q, C, *spatial) nearly equals an event, perhaps mirrored or turned, (Q,).

    Entries are in units of their channel's deviation in training, projected at random to 64 dimensions and whitened, so
    that all directions in which events differ count alike. How near is near depends on the data: of events without
    duplicates, the distances r_1, r_2, ... to the neighbours grow as in a space of some dimension d, such that
    (r_1 / r_k)^d is the smallest of k - 1 uniform numbers. d follows from the k / 2 th and the k th neighbour, which a
    dozen copies do not change. Many events are represented by evenly spaced ones.
    """
    events = events[:: math.ceil(len(events) / MOST)]
    some = torch.from_numpy(training[:: math.ceil(training.size / AT_ONCE)].astype(np.float64))
    mean, deviation = some.mean(0), some.std((0, *range(2, some.ndim)), correction=0, keepdim=True)[0]
    scale = deviation.where(deviation > 0, 1)
    kind = torch.float32 if mean.numel() > DIMENSIONS else torch.float64  # vectors may be far nearer than 1e-3
    mixing = torch.from_numpy(np.random.default_rng(0).standard_normal((mean.numel(), DIMENSIONS))).to(kind)

    def project(values: np.ndarray) -> torch.Tensor:
        parts = np.array_split(values, math.ceil(values.size / AT_ONCE))
        numbers = (torch.from_numpy(part.astype(np.float64)) for part in parts)
        return torch.cat([part.sub_(mean).div_(scale).flatten(1).to(kind) @ mixing for part in numbers])

    covariance = project(some.numpy()).double().T.cov(correction=0)
    if len(events) < FEWEST or not covariance.isfinite().all():  # as the values are not
        return np.zeros(len(queries), bool)
    variances, directions = torch.linalg.eigh(covariance)
    least = LEAST_VARIANCE * float(variances.mean()) + torch.finfo(torch.float32).tiny
    whitening = (directions / variances.clamp(min=least).sqrt()).to(kind)
    points, k = project(events) @ whitening, min(NEIGHBOURS, len(events) // 4)
    forms = [project(form) @ whitening for form in _turned(queries)]
    distances = torch.cdist(forms[0], points).topk(k, largest=False).values
    nearest = torch.stack([torch.cdist(form, points).amin(1) for form in forms]).amin(0)
    last = distances[:, -1]
    spread = (last[:, None] / distances[:, k // 2 :]).log().mean(1)  # (1 - log 2) / d is its mean
    surprise = (1 - math.log(2)) / spread * (last / nearest).log()
    return ((nearest < NEAR * last) & (surprise > -math.log(CHANCE))).numpy()


def _turned(events: np.ndarray) -> list[np.ndarray]:
    """Return events, then windows backwards, or images in all their mirrored and turned forms."""
    forms = [events]
    for axis in range(2, events.ndim):
        forms += [np.flip(form, axis) for form in forms]
    if events.ndim == 4 and events.shape[2] == events.shape[3]:
        forms += [form.swapaxes(2, 3) for form in forms]
    return forms


def overlapping(held_out: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return whether each held-out event (N, C, *spatial) shows a quarter of another one, at some shift, (N,).

    Of windows that overlap, the first or last quarter occurs in another one, and of patches a corner that is a quarter
    as high and wide. These are looked up by a hash at every position of the others. A block counts where its values
    change so often that a coincidence among all positions is unlikely: flat parts and padding do not. Where a quarter
    does not count, or few of all do, half of the length, height and width is taken.
    """
    if held_out.ndim == 3:  # windows are images of one row
        held_out, others = held_out[:, :, None], others[:, :, None]
    changes = np.diff(others[:: math.ceil(others.size / AT_ONCE)].astype(np.float64), axis=3)
    counts = np.unique(changes[changes != 0], return_counts=True)[1]
    bits = -math.log2(np.square(counts / counts.sum()).sum()) if len(counts) else 0.0  # of a change: collision entropy
    needed = math.log2(held_out.size) + math.log2(others.size) + MARGIN
    flags, told = np.zeros(len(held_out), bool), np.zeros((4, len(held_out)), bool)
    for share in (4, 2):
        height, width = (math.ceil(length / share) for length in held_out.shape[2:])
        ends = [(slice(length), slice(-length, None)) for length in (height, width)]
        corners = [held_out[..., rows, columns] for rows, columns in itertools.product(*ends)]
        informative = [(np.diff(part, axis=3) != 0).any(1).sum((1, 2)) * bits > needed for part in corners] & ~told
        if informative.mean() < RARE and (share == 4 or not informative.any()):
            continue
        wanted = np.stack([_hashes(part, height, width).ravel() for part in corners])
        table = np.isin(np.arange(1 << 16, dtype=np.uint64), wanted[informative] >> PREFIX)
        hashes = (_hashes(part, height, width) for part in np.array_split(others, math.ceil(others.size / HASHED)))
        seen = np.concatenate([codes[table[codes >> PREFIX]] for codes in hashes])
        flags |= (informative & np.isin(wanted, seen)).any(axis=0)
        told |= informative
    return flags


def _hashes(events: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return the hash of the block at each position of events (N, C, H, W), (N, H - height + 1, W - width + 1)."""
    factors = np.random.default_rng(0).integers(2**64 - 1, size=max(events.shape[1:]), dtype=np.uint64) | np.uint64(1)
    codes = (events.astype(np.float64) + 0.0).view(np.uint64) * factors[0]  # which is odd, so that no bit is lost
    codes ^= codes >> np.uint64(32)  # the low bits of floating-point numbers are often 0
    codes = np.einsum("nchw,c->nhw", codes, factors[: events.shape[1]])
    for axis, side in ((1, height), (2, width)):
        codes = np.einsum("...i,i->...", sliding_window_view(codes, side, axis=axis), factors[:side])
    return codes
