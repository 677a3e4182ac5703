"""Find events that nearly equal others: by the distance to the nearest one, which may be mirrored or turned.

Entries are in units of their channel's deviation, projected at random to 64 dimensions and whitened, so that all
directions in which events differ count alike. How near is near depends on the data: of events without duplicates, the
distances r_1, r_2, ... from one event to its neighbours grow as in a space of some dimension d, such that
(r_1 / r_k)^d is the smallest of k - 1 uniform numbers, below p with a probability of at most (k - 1) p. d is estimated
at each event from its k / 2 th to k th neighbour (Levina and Bickel 2004): a dozen copies do not change it.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

DIMENSIONS = 64  # of the projection
NEIGHBOURS = 64  # k
FEWEST = 32  # events among which neighbours are sought
MOST_ENTRIES = 1 << 28  # of the events among which they are sought: 87,381 images of 3 x 32 x 32
MOST_EVENTS = 100_000
CHANCE = 1e-7  # that an event without duplicates has one, from the estimated dimension
NEAR = 1 / 3  # of the distance to the k th neighbour
LARGEST_DIMENSION = 32.0
LEAST_VARIANCE = 1e-3  # of a direction, as a share of the mean: the noise of rare entries is not enlarged further
AT_ONCE = 1 << 22  # entries that are embedded together
QUERIES = 128  # that are compared together
SAMPLE = 256  # of the events, that are compared with the others of them


class Neighbours:
    """The events (N, C, *spatial) among which near duplicates are sought: all, or evenly spaced ones of many.

    Args:
        events: the events.
        training: those whose deviations are the units.
    """

    def __init__(self, events: np.ndarray, training: np.ndarray) -> None:
        dim = math.prod(events.shape[1:])
        self.events = events[:: math.ceil(len(events) / min(MOST_EVENTS, max(1, MOST_ENTRIES // dim)))]
        some = training[:: math.ceil(len(training) * dim / AT_ONCE)].astype(np.float64)
        kind = np.result_type(events.dtype, np.float32)  # float64 of values that float32 may not hold
        if dim > DIMENSIONS:
            self._map = np.random.default_rng(0).standard_normal((dim, DIMENSIONS), np.float32) / DIMENSIONS**0.5
        else:
            self._map = np.eye(dim, dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = some.std((0, *range(2, events.ndim)), keepdims=True)[0]
            self._mean, self._scale = some.mean(axis=0).astype(kind), np.where(deviation > 0, deviation, 1).astype(kind)
            covariance = np.cov(self._embed(some.astype(kind)).T, ddof=0, dtype=np.float64)
        if not np.isfinite(covariance).all():  # as the values are not
            self.events = events[:0]
            return
        variances, directions = np.linalg.eigh(np.atleast_2d(covariance))
        variances = variances.clip(min=max(LEAST_VARIANCE * float(variances.mean()), float(np.finfo(np.float32).tiny)))
        self._map = self._map @ (directions / np.sqrt(variances)).astype(np.float32)
        self._points = self._embed(self.events)
        self._offsets = np.square(self._points).sum(axis=1)

    def _embed(self, events: np.ndarray) -> np.ndarray:
        size = max(1, AT_ONCE // len(self._map))
        parts = ((events[first : first + size] - self._mean) / self._scale for first in range(0, len(events), size))
        return np.concatenate([part.reshape(len(part), -1).astype(np.float32) @ self._map for part in parts])

    @cached_property
    def usual(self) -> float:
        """The share of these events, of a sample, that nearly equal another one of them."""
        numbers = np.arange(0, len(self.events), max(1, math.ceil(len(self.events) / SAMPLE)))
        return float(self.near(self.events[numbers], numbers).mean()) if len(numbers) else 0.0

    def near(self, queries: np.ndarray, numbers: np.ndarray | None = None) -> np.ndarray:
        """Return whether each of the queries (Q, C, *spatial) nearly equals an event, perhaps mirrored or turned, (Q,).

        If the queries are among the events, `numbers` are theirs, and no query is compared with itself.
        """
        if len(self.events) < FEWEST:
            return np.zeros(len(queries), bool)
        k = min(NEIGHBOURS, len(self._points) // 4)
        first, *turned = (self._distances(each, k, numbers) for each in _turned(queries))
        nearest = np.min([first[:, 0], *(distances[:, 0] for distances in turned)], axis=0)
        further, last = first[:, k // 2 - 1 : -1], first[:, -1]
        harmonic = np.cumsum(1 / np.arange(1, k))  # the mean of -log u of the j th smallest of k - 1 uniform numbers
        expected = float((harmonic[-1] - harmonic[k // 2 - 2 : -1]).sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            dimension = expected / np.log(last[:, None] / further).sum(axis=1)
            surprise = -dimension.clip(max=LARGEST_DIMENSION) * np.log(nearest / last)
        return (nearest < NEAR * last) & (surprise > -math.log(CHANCE))

    def _distances(self, queries: np.ndarray, k: int, numbers: np.ndarray | None) -> np.ndarray:
        """Return the distances of the queries to the nearest k events but themselves, ascending, (Q, k)."""
        points, nearest = self._embed(queries), []
        for first in range(0, len(points), QUERIES):
            squares = points[first : first + QUERIES] @ (-2 * self._points.T)
            squares += self._offsets  # and the squared norm of the query, which changes no order
            if numbers is not None:
                squares[np.arange(len(squares)), numbers[first : first + QUERIES]] = np.inf
            nearest.append(squares.argpartition(k - 1, axis=1)[:, :k])
        return np.sort(np.linalg.norm(self._points[np.concatenate(nearest)] - points[:, None], axis=2))


def _turned(events: np.ndarray) -> list[np.ndarray]:
    """Return events, then windows backwards, or images in all their mirrored and turned forms."""
    forms = [events]
    if max(events.shape[2:]) > 1:  # vectors have an order of their entries
        forms += [each[..., ::-1] for each in forms]
    if events.ndim == 4:
        forms += [each[..., ::-1, :] for each in forms]
    if events.ndim == 4 and events.shape[2] == events.shape[3]:
        forms += [each.swapaxes(2, 3) for each in forms]
    return forms
