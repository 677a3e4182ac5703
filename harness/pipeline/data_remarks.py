"""Examine loaded splits before training: held-out events seen in training, and values without a bound.

A remark is a warning where results on the data would mislead: 1 % or more of the held-out events were seen, or values
that are said to be continuous are constant, repeated, on a lattice, or functions of other channels, so that a density
on them can grow without bound. On a lattice the noise of the dequantisation bounds it, and the remark only says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harness.core.errors import DataError, UserError
from harness.core.records import write_atomically
from harness.core.settings import DataRef
from harness.datasets import Splits, Store, find_dataset
from harness.datasets._values.encoding import MOST_REPEATED, listed
from harness.datasets._values.lattice import FEWEST, find_lattice
from harness.pipeline.neighbours import Neighbours
from harness.pipeline.overlap import digests, overlapping

VERSION = 7  # of the remarks in the cache
LEAST_SHARE = 0.01  # of held-out events that were seen: a handful of equal events is natural
LARGE_SHARE = 0.1  # of events that nearly equal another: natural in no data set
FEW = 3  # events that nearly equal others
EXAMINED = 256  # events of a split that are compared with near and overlapping ones, evenly spread
ROWS = 20_000  # of the values of the channels, evenly spread, that are examined
MOST_EVENTS = 2048  # that they come from
VALUES = 1 << 21  # of the training events, evenly spread, that are examined for repeated values
ENTRIES = 16  # of each channel that are examined for a lattice of their own
SAME = 1e-7  # difference of values that count as one, as a share of the interquartile range of the channel
MOST_CHANNELS = 512
FEW_EVENTS = 64  # of which the channels are compared within each
NAMED = 5  # channels of a linear function that a remark names
MOST_STEPS = 8  # of a lattice that a note lists
NEARLY = 0.01  # the same of channels that are nearly a function of others
FAR = 50.0  # interquartile ranges from the median to the farthest value: scaled by extremes, the others are one value
DEPENDENT = 1e-6  # standard deviation of what others leave of a channel, as a share of all of it


@dataclass(frozen=True)
class DataRemark:
    """A fact about the splits of a data set."""

    text: str  # a clause
    warning: bool = False  # results on the data mislead
    unbounded: bool = False  # a density on the data can grow without bound
    of_range: bool = False  # only where channels are scaled by their range


def remarks_on(store: Store, data: DataRef, splits: Splits) -> list[DataRemark]:
    """Return the remarks on the splits of a data set.

    They are kept in the cache, so that the trials of a run do not examine the arrays again.
    """
    names: Sequence[str] = ()
    with contextlib.suppress(UserError):
        names = find_dataset(data.name).channels(dict(data.options))
    sizes = [values.shape for values in splits.parts().values()]
    checksum = splits.digest() if splits.checksum is None else splits.checksum
    facts: list[Any] = [VERSION, data.name, dict(data.options), checksum, sizes, splits.left_out, *splits.warnings]
    facts += [] if data.split is None else [data.split, data.keep_test]  # the checksum may be that of all its splits
    key = json.dumps(facts, sort_keys=True, default=str)
    path = store.cache / "remarks" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    try:
        remarks = [DataRemark(**each) for each in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        remarks = examine(splits, names)
        with contextlib.suppress(OSError):  # a trial does without
            write_atomically(path, json.dumps([asdict(remark) for remark in remarks]).encode())
    return [remark for remark in remarks if not remark.of_range or data.preprocessing == "scale"]


def remark_lines(store: Store, data: DataRef, splits: Splits, notes: bool = True) -> list[str]:
    """Return a line per remark on the splits of a data set, "warning: LABEL: text" or "note: LABEL: text".

    The label of a new split has its number. Without `notes` only warnings are returned.

    Raises:
        DataError: a density on them can grow without bound, and the suite does not allow it.
    """
    remarks = remarks_on(store, data, splits)
    for remark in remarks:
        if remark.unbounded and not data.allow_unbounded:
            raise DataError(
                f"{data.label}: {remark.text}; leave it out, give values of a lattice as whole numbers, or say "
                "allow_unbounded: true"
            )
    label = data.label if data.split is None else f"{data.label}, split {data.split}"
    said = [remark for remark in remarks if notes or remark.warning]
    return [f"{'warning' if remark.warning else 'note'}: {label}: {remark.text}" for remark in said]


def notes_of(remarks: Sequence[DataRemark]) -> dict[str, str]:
    """Return the notes of a record: "data warning" and "data remark", where there are any."""
    names = {"data warning": True, "data remark": False}
    texts = {name: [remark.text for remark in remarks if remark.warning == warning] for name, warning in names.items()}
    return {name: "; ".join(clauses) for name, clauses in texts.items() if clauses}


def data_notes(splits: Splits) -> dict[str, str]:
    """Return the content, the sizes of the splits and the source of the data that a trial read."""
    sizes = ", ".join(f"{len(values):,} {name}" for name, values in splits.parts().items())
    notes = {"data": splits.description, "splits": sizes}
    if splits.steps is not None:
        counts = Counter(f"{size:g} {unit}" for size, unit in splits.steps)
        texts = [text + f" ({count} channels)" * (count > 1) for text, count in counts.items()]
        notes["steps"] = listed(texts, MOST_STEPS)
    if splits.checksum is not None:
        notes["checksum"] = splits.checksum
    if splits.log_widths is None and (splits.no_floor is not None or not all(splits.noisy)):
        notes["floor"] = splits.no_floor or "the values are said to lie on no lattice; no noise is added to them"
    return notes


def examine(splits: Splits, names: Sequence[str] = ()) -> list[DataRemark]:
    """Return the remarks on splits, whose channels may have names."""
    labels = list(names) or [f"channel {number}" for number in range(splits.shape[0])]
    of_values = (*_repeating(splits, labels), *_dependent(splits, labels))
    stated = [DataRemark(text, warning=True) for text in splits.warnings]
    return [*stated, *map(DataRemark, splits.left_out), *_seen(splits), *of_values, *_far(splits, labels)]


def _far(splits: Splits, labels: Sequence[str]) -> Iterator[DataRemark]:
    """Yield the channels whose extremes squeeze all other values together."""
    distances = farthest(splits)
    far = [f"{labels[channel]} ({distances[channel]:,.0f})" for channel in np.flatnonzero(distances > FAR).tolist()]
    if far:
        yield DataRemark(
            f"the farthest value is more than {FAR:g} interquartile ranges from the median in {listed(far, NAMED)}"
            f": scaled by their extremes, the other values lie close together; say preprocessing: asinh",
            warning=True,
            of_range=True,
        )


def farthest(splits: Splits) -> np.ndarray:
    """Return the distance of each channel's farthest training value from its median, in interquartile ranges, (C,).

    It is 0 for values on levels, whose range is known, and for a channel of which half the values are one.
    """
    events = splits.train
    if splits.levels is not None:
        return np.zeros(splits.shape[0])
    places = (0, *range(2, events.ndim))
    some = np.asarray(events[:: math.ceil(events.size / VALUES)], np.float64)
    low, middle, high = np.quantile(np.moveaxis(some, 1, 0).reshape(some.shape[1], -1), (0.25, 0.5, 0.75), axis=1)
    distance = np.maximum(events.max(places) - middle, middle - events.min(places))
    return np.where(high > low, distance / np.where(high > low, high - low, 1), 0.0)


def _repeated(splits: Splits, sums: Mapping[str, Sequence[bytes]]) -> Iterator[DataRemark]:
    """Yield how many events repeat in each split, by the digests of its events, and how many of test nearly do."""
    for name, of_split in sums.items():
        distinct = len(set(of_split))
        share = 1 - distinct / len(of_split)
        if share:
            text = f"{len(of_split):,} {name} events are {distinct:,} distinct ones ({share:.1%} repeat another)"
            yield DataRemark(text, name != "train" and share >= LEAST_SHARE)
    first = np.sort(np.unique(sums["test"], return_index=True)[1])
    if (share := Neighbours(splits.test[first], splits.train).usual) >= LARGE_SHARE:
        yield DataRemark(f"{share:.1%} of the distinct test events nearly equal another test event", warning=True)


def _seen(splits: Splits) -> Iterator[DataRemark]:
    """Yield how many events repeat in their split, and how many held-out ones were seen before they are evaluated."""
    parts = splits.parts()
    sums = {name: digests(values) for name, values in parts.items()}
    yield from _repeated(splits, sums)
    windows = "windows" if splits.train.ndim == 3 else "images"
    for others, held_out in (("train", ("test", "validation")), ("validation", ("test",))):
        seen, there = "training" if others == "train" else others, set(sums[others])
        neighbours = Neighbours(parts[others], splits.train)
        equal = {name: np.array([digest in there for digest in sums[name]]) for name in held_out}
        chosen = {name: np.arange(0, len(each), math.ceil(len(each) / EXAMINED)) for name, each in equal.items()}
        sample = np.concatenate([parts[name][numbers] for name, numbers in chosen.items()])
        flags = np.stack([neighbours.near(sample), overlapping(sample, parts[others])])
        for name, numbers in chosen.items():
            near, sharing = flags[:, : len(numbers)] & ~equal[name][numbers]
            flags = flags[:, len(numbers) :]
            many = near.sum() >= FEW and near.mean() >= max(LEAST_SHARE, min(2 * neighbours.usual, LARGE_SHARE))
            examined = f"{'examined ' * (len(numbers) < len(equal[name]))}{name}"
            for each, what, clause, said in (
                (equal[name], name, f"equal {seen} events", equal[name].any()),
                (near, examined, f"nearly equal {seen} events, perhaps mirrored or turned", many),
                (sharing & ~near, examined, f"overlap {seen} {windows}", (sharing & ~near).mean() >= LEAST_SHARE),
            ):
                if said:
                    text = f"{each.sum():,} of {len(each):,} {what} events ({each.mean():.1%}) {clause}"
                    yield DataRemark(text, bool(each.mean() >= LEAST_SHARE))


def _repeating(splits: Splits, labels: Sequence[str]) -> Iterator[DataRemark]:
    """Yield which channels repeat values in training although they are said to be continuous."""
    at = [channel for channel, noisy in enumerate(splits.noisy) if not noisy]
    events = splits.train if len(at) == len(labels) else splits.train[:, at]
    clauses = repeated_values(events, [labels[channel] for channel in at]) if at else []
    if clauses:
        more = f", and {len(clauses) - NAMED:,} other channels repeat values" * (len(clauses) > NAMED)
        text = f"{', '.join(clauses[:NAMED])}{more}, although said to be continuous: a density can grow without bound"
        yield DataRemark(text, warning=True, unbounded=True)


def repeated_values(events: np.ndarray, labels: Sequence[str]) -> list[str]:
    """Return a clause for each channel, named by its label, of events (N, C, *spatial) whose values repeat.

    Overlapping windows share values, so these are compared within one event, and between events at one entry.
    """
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


def _dependent(splits: Splits, labels: Sequence[str]) -> Iterator[DataRemark]:
    """Yield which channels are constant, or linear functions of those before them, in a sample of training events."""
    train, channels = splits.train, splits.shape[0]
    sample = _sample(train)
    if channels > MOST_CHANNELS or len(sample) <= 2 * channels:  # so few values are always dependent
        return
    deviation = sample.std(axis=0)
    rounding = float(np.finfo(train.dtype).eps) if train.dtype.kind == "f" else 0.0
    error = DEPENDENT * deviation + 4 * rounding * np.abs(sample).max(axis=0)
    varying = np.flatnonzero(deviation > error)
    clauses = {
        int(channel): f"{labels[channel]} has one value in training"
        for channel in np.setdiff1d(np.arange(channels), varying)
        if splits.noisy[channel] and np.ptp(train[:, channel]) <= 16 * error[channel]  # others: see `_repeating`
    }
    standard = (sample[:, varying] - sample[:, varying].mean(axis=0)) / deviation[varying]
    # A QR decomposition leaves nothing of a column that others determine.
    left = np.abs(np.diag(np.linalg.qr(standard, mode="r"))) / math.sqrt(len(sample))
    dependent = left <= error[varying] / deviation[varying]
    factors, *_ = np.linalg.lstsq(standard[:, ~dependent], standard[:, dependent], rcond=None)
    for channel, weights in zip(varying[dependent], factors.T, strict=True):
        others = varying[~dependent][np.abs(weights) > math.sqrt(DEPENDENT)]
        same = len(others) == 1 and np.abs(sample[:, channel] - sample[:, others[0]]).max() <= 16 * error[channel]
        named = [labels[other] for other in others[:NAMED]]
        named += [f"{len(others) - NAMED} more"] * (len(others) > NAMED)
        kind = "equals" if same else "is a linear function of"
        clauses[int(channel)] = f"{labels[channel]} {kind} {' and '.join(named)}"
    within = _left_in_events(train)[varying]
    if nearly := [labels[channel] for channel in varying[~dependent & (within <= NEARLY)]]:
        text = f"nearly linear functions of the channels before them: {listed(nearly, NAMED)}"
        yield DataRemark(f"{text} in an event (to {NEARLY:.0%} of their deviation): a likelihood counts them as new")
    text = ", ".join(clause for _, clause in sorted(clauses.items()))
    if text and all(splits.noisy):
        yield DataRemark(f"{text}: the noise of the dequantisation bounds what a density gains by it")
    elif text:
        yield DataRemark(f"{text}: a density can grow without bound", warning=True, unbounded=True)


def _left_in_events(events: np.ndarray) -> np.ndarray:
    """Return the share of each channel's deviation in an event that those before it leave, (C,): a median of events.

    Leads of an ECG depend on each other in one recording, and differ by an offset from one to the next.
    """
    channels = events.shape[1]
    left = []
    for event in events[:: math.ceil(len(events) / FEW_EVENTS)].astype(np.float64):
        centred = event.reshape(channels, -1)
        centred = centred - centred.mean(axis=1, keepdims=True)
        deviation = centred.std(axis=1, keepdims=True)
        if centred.shape[1] > 2 * channels and (deviation > 0).all():
            shares = np.abs(np.diag(np.linalg.qr((centred / deviation).T, mode="r")))
            left.append(shares / math.sqrt(centred.shape[1]))
    return np.median(left, axis=0) if left else np.ones(channels)


def _sample(events: np.ndarray) -> np.ndarray:
    """Return the values of the channels at some positions of events (N, C, *spatial), (about ROWS, C) in float64."""
    some = events[:: math.ceil(len(events) / max(ROWS // math.prod(events.shape[2:]), MOST_EVENTS))]
    values = np.moveaxis(some, 1, -1).reshape(-1, events.shape[1])
    return values[:: math.ceil(len(values) / ROWS)].astype(np.float64)
