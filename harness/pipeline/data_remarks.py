"""Examine loaded splits before training: held-out events seen in training, and values without a bound.

A remark is a warning where results on the data would mislead: held-out events were seen, or values that are said to be
continuous are constant, repeated, on a lattice, or functions of other channels, so that a density on them can grow
without bound. On a lattice the noise of the dequantisation bounds it, and the remark only says so.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from harness.core.errors import DataError, UserError
from harness.core.records import write_atomically
from harness.core.settings import DataRef, settings_digest
from harness.core.texts import first_few
from harness.datasets import Splits, Store, find_dataset
from harness.datasets._values.encoding import MOST_REPEATED, SMALLEST
from harness.datasets._values.lattice import FEWEST, find_lattice
from harness.pipeline.duplicates import digests, nearly_equal, overlapping
from harness.pipeline.pipeline import ValueRange

VERSION = 9  # of the remarks in the cache
LEAST_SHARE = 0.01  # of held-out events that were seen: a handful of equal events is natural
NEAR_SHARE = 0.035  # of held-out events that nearly equal one: natural data have up to 3 %
EXAMINED = 256  # events of a split that are compared with near and overlapping ones, evenly spread
VALUES = 1 << 21  # of the training events, evenly spread, whose channels are examined
MOST_EVENTS = 20_000  # that they come from
ENTRIES = 16  # of each channel that are examined for a lattice of their own
SAME = 1e-7  # difference of values that count as one, as a share of the interquartile range of the channel
DEPENDENT = 1e-6  # standard deviation of what others leave of a channel, as a share of all of it
NEARLY = 0.01  # the same of channels that are nearly functions of others within an event
FEW_EVENTS = 64  # that these are sought in, evenly spread
FAR = 50.0  # interquartile ranges from the median to the farthest value: scaled by extremes, the others are one value


class DataRemark(NamedTuple):
    """A fact about the splits of a data set."""

    text: str  # a clause
    warning: bool = False  # results on the data mislead
    unbounded: bool = False  # a density on the data can grow without bound


def remarks_on(store: Store, data: DataRef, splits: Splits) -> list[DataRemark]:
    """Return the remarks on the splits of a data set; they are kept in the cache, for all trials of a run."""
    names: Sequence[str] = ()
    with contextlib.suppress(UserError):  # of made data that no data set has
        names = find_dataset(data.name).channels(dict(data.options))
    ranged = data.preprocessing == "scale"
    checksum = splits.digest() if splits.checksum is None else splits.checksum
    key = settings_digest({"of": repr((VERSION, data.arrays, ranged, checksum, splits.left_out, splits.warnings))})
    path = store.cache / "remarks" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        return [DataRemark(*each) for each in json.loads(path.read_text(encoding="utf-8"))]
    remarks = examine(splits, names, ranged)
    with contextlib.suppress(OSError):  # a trial does without
        write_atomically(path, json.dumps(remarks).encode())
    return remarks


def remark_lines(store: Store, data: DataRef, splits: Splits, notes: bool = True) -> list[str]:
    """Return a line per remark on the splits of a data set, "warning: LABEL: text" or "note: LABEL: text".

    The label of a new split has its number. Without `notes` only warnings are returned.

    Raises:
        DataError: a density on them can grow without bound, and the suite does not allow it.
    """
    remarks = remarks_on(store, data, splits)
    if (faults := [remark.text for remark in remarks if remark.unbounded]) and not data.allow_unbounded:
        hint = "leave it out, give values of a lattice as whole numbers, or say allow_unbounded: true"
        raise DataError(f"{data.label}: {faults[0]}; {hint}")
    label = data.label if data.split is None else f"{data.label}, split {data.split}"
    return [f"{'warning' if warning else 'note'}: {label}: {text}" for text, warning, _ in remarks if notes or warning]


def notes_of(remarks: Sequence[DataRemark]) -> dict[str, str]:
    """Return the notes of a record: "data warning" and "data remark", where there are any."""
    warnings = "; ".join(remark.text for remark in remarks if remark.warning)
    others = "; ".join(remark.text for remark in remarks if not remark.warning)
    return ({"data warning": warnings} if warnings else {}) | ({"data remark": others} if others else {})


def data_notes(splits: Splits) -> dict[str, str]:
    """Return the content, the sizes of the splits and the source of the data that a trial read."""
    sizes = ", ".join(f"{len(values):,} {name}" for name, values in splits.parts().items())
    notes = {"data": splits.description, "splits": sizes}
    if splits.steps is not None:
        counts = Counter(f"{size:g} {unit}" for size, unit in splits.steps)
        notes["steps"] = first_few([text + f" ({n} channels)" * (n > 1) for text, n in counts.items()])
    notes |= {} if splits.checksum is None else {"checksum": splits.checksum}
    if splits.log_widths is None and (splits.no_floor is not None or not all(splits.noisy)):
        notes["floor"] = splits.no_floor or "the values are said to lie on no lattice; no noise is added to them"
    return notes


def examine(splits: Splits, names: Sequence[str] = (), ranged: bool = True) -> list[DataRemark]:
    """Return the remarks on splits, whose channels may have names, and may be scaled by their range."""
    labels = list(names) or [f"channel {number}" for number in range(splits.shape[0])]
    some = splits.train[:: math.ceil(len(splits.train) / min(MOST_EVENTS, max(FEWEST, VALUES // splits.train[0].size)))]
    continuous = [at for at, noisy in enumerate(splits.noisy) if not noisy]
    remarks = [DataRemark(text, warning=True) for text in splits.warnings]
    remarks += [*map(DataRemark, splits.left_out), *_seen(splits)]
    if clauses := [f"{labels[at]} {clause}" for at in continuous if (clause := repetition(some[:, at]))]:
        text = f"{first_few(clauses)}, although said to be continuous: a density can grow without bound"
        remarks.append(DataRemark(text, warning=True, unbounded=True))
    if dependent := np.flatnonzero(_dependent(some)).tolist():
        unbounded = not {*continuous}.isdisjoint(dependent)
        bound = "a density can grow without bound" if unbounded else "the noise of the dequantisation bounds a density"
        text = f"{first_few([labels[at] for at in dependent])}: constant or a linear function of those before"
        remarks.append(DataRemark(f"{text}: {bound}", unbounded, unbounded))
    if nearly := [labels[at] for at in np.flatnonzero(_nearly_dependent(some)) if at not in dependent]:
        text = f"nearly linear functions of the channels before them: {first_few(nearly)}"
        remarks.append(DataRemark(f"{text} in an event (to {NEARLY:.0%} of their deviation), counted as new"))
    far = [f"{label} ({each:,.0f})" for label, each in zip(labels, farthest(splits), strict=True) if each > FAR]
    if far and ranged:
        text = f"the farthest value is more than {FAR:g} interquartile ranges from the median in {first_few(far)}"
        hint = "scaled by their extremes, the other values lie close together; say preprocessing: asinh"
        remarks.append(DataRemark(f"{text}: {hint}", warning=True))
    return remarks


def farthest(splits: Splits) -> np.ndarray:
    """Return the distance of each channel's farthest training value from its median, in interquartile ranges, (C,).

    It is 0 for values on levels, whose range is known, and for a channel of which half the values are one.
    """
    if splits.levels is not None:
        return np.zeros(splits.shape[0])
    values = ValueRange.of(splits)
    low, high, median, spread = map(np.array, (values.low, values.high, values.median, values.spread))
    return np.divide(np.maximum(high - median, median - low), spread, out=np.zeros(len(low)), where=spread > 0)


def _seen(splits: Splits) -> Iterator[DataRemark]:
    """Yield how many events repeat in their split, and how many held-out ones were seen before they are evaluated."""
    parts = splits.parts()
    sums = {name: np.array(digests(values)) for name, values in parts.items()}
    for name, of_split in sums.items():
        repeated = ~np.isin(np.arange(len(of_split)), np.unique(of_split, return_index=True)[1])
        if repeated.any():
            yield _counted(repeated, name, "repeat others of their split", name != "train")
    for name, other in (("test", "train"), ("validation", "train"), ("test", "validation")):
        seen, equal = other.replace("train", "training"), np.isin(sums[name], sums[other])
        if equal.any():
            yield _counted(equal, name, f"equal {seen} events")
        others = np.flatnonzero(~equal)
        if not len(others):
            continue
        sample = others[:: math.ceil(len(others) / EXAMINED)]
        near = nearly_equal(parts[name][sample], parts[other], splits.train)
        if near.mean() >= NEAR_SHARE:
            yield _counted(near, f"examined {name}", f"nearly equal {seen} events, perhaps mirrored or turned")
        shared = overlapping(parts[name][sample], parts[other]) & ~near
        if shared.mean() >= LEAST_SHARE:
            yield _counted(shared, f"examined {name}", f"overlap {seen} events")


def _counted(flags: np.ndarray, what: str, clause: str, evaluated: bool = True) -> DataRemark:
    text = f"{flags.sum():,} of {len(flags):,} {what} events ({flags.mean():.1%}) {clause}"
    return DataRemark(text, warning=evaluated and bool(flags.mean() >= LEAST_SHARE))


def repetition(values: np.ndarray) -> str | None:
    """Return a clause on how the values (N, *spatial) of a channel repeat or lie on a lattice; None if they do not.

    Overlapping windows share values, so these are compared within one event, and between events at one entry.
    """
    if not np.isfinite(values).all():
        return "has values that are not finite"
    values = values.reshape(len(values), -1)
    count, entries = values.shape
    at_entries = {f" at entry {entry}": values[:, entry] for entry in range(0, entries, math.ceil(entries / ENTRIES))}
    for place, part in {"": values, **at_entries}.items():
        if (lattice := find_lattice(np.unique(part), values.dtype, part.size)) is not None:
            return f"lies on a lattice of step {lattice.step:.6g}{place}"
    least = SAME * float(np.subtract(*np.percentile(values, [75, 25])))
    shares = _ties(values, least).mean(axis=0)
    repeated = np.flatnonzero(shares > max(MOST_REPEATED, min(FEWEST, count - 1) / count))
    if len(repeated):
        places = f"{len(repeated):,} of {entries:,} entries, the first at {repeated[0]}"
        return f"repeats {shares[repeated].mean():.0%} of its values in several events, at {places}"
    share = _ties(values.T, least).mean()
    return f"repeats {share:.0%} of its values in the same event" if share > MOST_REPEATED else None


def _ties(values: np.ndarray, least: float) -> np.ndarray:
    """Return whether each value, in ascending order, differs by at most `least` from another of its column (n, L)."""
    equal = np.diff(np.sort(values, axis=0), axis=0) <= least
    return np.pad(equal, ((1, 0), (0, 0))) | np.pad(equal, ((0, 1), (0, 0)))


def _dependent(events: np.ndarray) -> np.ndarray:
    """Return whether channels are constant or linear functions of those before them, to within rounding, (C,)."""
    columns = np.moveaxis(events, 1, -1).reshape(-1, events.shape[1]).astype(np.float64)
    if len(columns) <= 2 * columns.shape[1]:  # so few values are always dependent
        return np.zeros(columns.shape[1], bool)
    kind = events.dtype if events.dtype.kind == "f" else columns.dtype
    rounding = 4 * np.finfo(kind).eps * np.abs(columns).max(axis=0) / np.maximum(columns.std(axis=0), SMALLEST)
    return _left(columns) <= DEPENDENT + rounding


def _nearly_dependent(events: np.ndarray) -> np.ndarray:
    """Return whether channels are nearly linear functions of those before them in half of the events, (C,)."""
    channels, some = events.shape[1], events[:: math.ceil(len(events) / FEW_EVENTS)]
    columns = (event.reshape(channels, -1).T.astype(np.float64) for event in some)
    left = [_left(each) for each in columns if len(each) > 2 * channels and (np.ptp(each, axis=0) > 0).all()]
    return np.median(left, axis=0) <= NEARLY if left else np.zeros(channels, bool)


def _left(columns: np.ndarray) -> np.ndarray:
    """Return the share of the deviation of each column (n, C) that linear functions of those before it leave, (C,)."""
    standard = (columns - columns.mean(axis=0)) / np.maximum(columns.std(axis=0), SMALLEST)
    return np.abs(np.diag(np.linalg.qr(standard, mode="r"))) / math.sqrt(len(columns))
