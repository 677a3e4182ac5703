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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from harness.core.errors import DataError, UserError
from harness.core.records import write_atomically
from harness.core.settings import DataRef
from harness.datasets import Splits, Store, find_dataset
from harness.datasets._values.encoding import MOST_REPEATED
from harness.datasets._values.lattice import FEWEST, find_lattice
from harness.datasets._values.survey import Survey
from harness.pipeline.neighbours import Neighbours
from harness.pipeline.overlap import digests, overlapping
from harness.pipeline.pipeline import ValueRange

VERSION = 6  # of the remarks in the cache
LEAST_SHARE = 0.01  # of held-out events that were seen: a handful of equal events is natural
LARGE_SHARE = 0.1  # of events that nearly equal another: natural in no data set
FEW = 3  # events that nearly equal others
EXAMINED = 256  # events of a split that are compared with near and overlapping ones, evenly spread
ROWS = 20_000  # of the values of the channels, evenly spread, that are examined
MOST_EVENTS = 2048  # of which the channels are compared
APART = 32  # events that share no samples, of which values are compared
MOST_CHANNELS = 512
FEW_EVENTS = 64  # of which the channels are compared within each
NAMED = 5  # channels, or steps, that a text names
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
    checksum = splits.digest() if splits.checksum is None else splits.checksum
    sizes = [values.shape for values in splits.parts().values()]
    of_split = [data.split, data.keep_test]  # the checksum may be that of all its splits
    facts = [VERSION, data.name, dict(data.options), checksum, sizes, of_split, splits.left_out, splits.warnings]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
    path = store.cache / "remarks" / f"{key[:16]}.json"
    try:
        remarks = [DataRemark(**each) for each in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        names: Sequence[str] = ()
        with contextlib.suppress(UserError):
            names = find_dataset(data.name).channels(dict(data.options))
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
    return [
        f"{'warning' if remark.warning else 'note'}: {label}: {remark.text}"
        for remark in remarks
        if notes or remark.warning
    ]


def notes_of(remarks: Sequence[DataRemark]) -> dict[str, str]:
    """Return the notes of a record: "data warning" and "data remark", where there are any."""
    names = {"data warning": True, "data remark": False}
    texts = {name: [remark.text for remark in remarks if remark.warning == warning] for name, warning in names.items()}
    return {name: "; ".join(clauses) for name, clauses in texts.items() if clauses}


def data_notes(splits: Splits) -> dict[str, str]:
    """Return the content, the sizes of the splits and the source of the data that a trial read."""
    notes = {
        "data": splits.description,
        "splits": ", ".join(f"{len(values):,} {name}" for name, values in splits.parts().items()),
    }
    if splits.steps is not None:
        counts = Counter(f"{size:g} {unit}" for size, unit in splits.steps)
        texts = [text + f" ({count} channels)" * (count > 1) for text, count in counts.items()]
        notes["steps"] = _listed(texts)
    if splits.checksum is not None:
        notes["checksum"] = splits.checksum
    if splits.log_widths is None and (splits.no_floor is not None or not all(splits.noisy)):
        notes["floor"] = splits.no_floor or "the values are said to lie on no lattice; no noise is added to them"
    return notes


def examine(splits: Splits, names: Sequence[str] = ()) -> list[DataRemark]:
    """Return the remarks on splits, whose channels may have names."""
    labels = list(names) or [f"channel {number}" for number in range(splits.shape[0])]
    stated = [DataRemark(text, warning=True) for text in splits.warnings]
    of_values = (*_repeating(splits, labels), *_dependent(splits, labels), *_far(splits, labels))
    return [*stated, *map(DataRemark, splits.left_out), *_seen(splits), *of_values]


def _listed(clauses: Sequence[str]) -> str:
    return ", ".join(clauses[:NAMED]) + f" and {len(clauses) - NAMED:,} more" * (len(clauses) > NAMED)


def _far(splits: Splits, labels: Sequence[str]) -> Iterator[DataRemark]:
    """Yield the channels whose extremes squeeze all other values together."""
    distances = farthest(splits)
    far = [f"{labels[channel]} ({distances[channel]:,.0f})" for channel in np.flatnonzero(distances > FAR).tolist()]
    if far:
        yield DataRemark(
            f"the farthest value is more than {FAR:g} interquartile ranges from the median in {_listed(far)}: scaled "
            "by their extremes, the other values lie close together; say preprocessing: asinh",
            warning=True,
            of_range=True,
        )


def farthest(splits: Splits) -> np.ndarray:
    """Return the distance of each channel's farthest training value from its median, in interquartile ranges, (C,).

    It is 0 for values on levels, whose range is known, and for a channel of which half the values are one.
    """
    if splits.levels is not None:
        return np.zeros(splits.shape[0])
    values = ValueRange.of(splits, statistics=True)
    low, high, middle, spread = map(np.array, (values.low, values.high, values.median, values.spread))
    return np.where(spread > 0, np.maximum(high - middle, middle - low) / np.where(spread > 0, spread, 1), 0.0)


def _seen(splits: Splits) -> Iterator[DataRemark]:
    """Yield how many events repeat in their split, and how many held-out ones were seen before they are evaluated."""
    parts = splits.parts()
    sums = {name: digests(values) for name, values in parts.items()}
    for name, of_split in sums.items():
        if share := 1 - len(set(of_split)) / len(of_split):
            text = f"{len(of_split):,} {name} events are {len(set(of_split)):,} distinct ones"
            yield DataRemark(f"{text} ({share:.1%} repeat another)", name != "train" and share >= LEAST_SHARE)
    first = np.sort(np.unique(sums["test"], return_index=True)[1])
    if (share := Neighbours(splits.test[first], splits.train).usual) >= LARGE_SHARE:
        yield DataRemark(f"{share:.1%} of the distinct test events nearly equal another test event", warning=True)
    for others, held_out in (("train", ("test", "validation")), ("validation", ("test",))):
        seen, there = "training" if others == "train" else others, set(sums[others])
        chosen = {name: np.arange(0, len(sums[name]), math.ceil(len(sums[name]) / EXAMINED)) for name in held_out}
        sample = np.concatenate([parts[name][numbers] for name, numbers in chosen.items()])
        neighbours = Neighbours(parts[others], splits.train)
        flags = np.stack([overlapping(sample, parts[others]), neighbours.near(sample)])
        for name, numbers in chosen.items():
            equal = np.array([digest in there for digest in sums[name]])
            (sharing, near), flags = flags[:, : len(numbers)] & ~equal[numbers], flags[:, len(numbers) :]
            near &= ~sharing
            many = near.sum() >= FEW and near.mean() >= max(LEAST_SHARE, min(2 * neighbours.usual, LARGE_SHARE))
            examined = f"{'examined ' * (len(numbers) < len(equal))}{name}"
            alike = f"share most of their values with {seen} events, perhaps shifted, mirrored or turned"
            for each, what, clause, said in (
                (equal, name, f"equal {seen} events", equal.any()),
                (sharing, examined, alike, sharing.mean() >= LEAST_SHARE),
                (near, examined, f"nearly equal {seen} events, perhaps mirrored or turned", many),
            ):
                if said:
                    text = f"{each.sum():,} of {len(each):,} {what} events ({each.mean():.1%}) {clause}"
                    yield DataRemark(text, bool(each.mean() >= LEAST_SHARE))


def _repeating(splits: Splits, labels: Sequence[str]) -> Iterator[DataRemark]:
    """Yield which channels repeat values in training although they are said to be continuous."""
    at = [channel for channel, noisy in enumerate(splits.noisy) if not noisy]
    clauses = repeated_values(splits.train[:, at], [labels[channel] for channel in at]) if len(at) else []
    if clauses:
        text = f"{_listed(clauses)}, although said to be continuous: a density can grow without bound"
        yield DataRemark(text, warning=True, unbounded=True)


def repeated_values(events: np.ndarray, labels: Sequence[str]) -> list[str]:
    """Return a clause for each channel, named by its label, of events (N, C, *spatial) whose values repeat.

    Overlapping windows share values, so few events far apart are examined of all but vectors.
    """
    count = ROWS if math.prod(events.shape[2:]) == 1 else APART
    some = np.asarray(events[:: math.ceil(len(events) / count)])
    some = some if some.dtype.kind == "f" else some.astype(np.float64)
    survey, clauses = Survey(events.shape[1], some.dtype, some[:, 0].size), list[str]()
    if not np.isfinite(some).all():
        return ["values are not finite"]
    survey.add(some)
    for channel, label in enumerate(labels):
        distinct, (share, commonest, of_commonest) = survey.distinct(channel), survey.repeated(channel)
        lattice = None if distinct is None else find_lattice(distinct, some.dtype, survey.count)
        if lattice is not None:
            clauses.append(f"{label} lies on a lattice of step {lattice.step:.6g}")
        elif share > MOST_REPEATED and survey.count > FEWEST:
            shares = f"{share:.0%} of the values of {label} occur more than once"
            clauses.append(f"{shares} ({of_commonest:.0%} are {commonest:g})")
    return clauses


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
    constant = [at for at in np.flatnonzero(deviation <= error).tolist() if np.ptp(train[:, at]) <= 16 * error[at]]
    dependent = varying[_left(sample[:, varying].T) <= error[varying] / deviation[varying]]
    within = _left_in_events(train)
    nearly = [labels[at] for at in np.setdiff1d(varying, dependent).tolist() if within[at] <= NEARLY]
    if nearly:
        text = f"nearly linear functions of the channels before them: {_listed(nearly)}"
        yield DataRemark(f"{text} in an event (to {NEARLY:.0%} of their deviation): a likelihood counts them as new")
    clauses = {at: f"{labels[at]} has one value in training" for at in constant if splits.noisy[at]}  # see `_repeating`
    clauses |= {at: f"{labels[at]} is a linear function of the channels before it" for at in dependent.tolist()}
    text = ", ".join(clauses[at] for at in sorted(clauses))
    if text and all(splits.noisy):
        yield DataRemark(f"{text}: the noise of the dequantisation bounds what a density gains by it")
    elif text:
        yield DataRemark(f"{text}: a density can grow without bound", warning=True, unbounded=True)


def _left(values: np.ndarray) -> np.ndarray:
    """Return the share of the deviation of each channel (C, n) that linear functions of those before it leave, (C,)."""
    standard = (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, keepdims=True)
    return np.abs(np.diag(np.linalg.qr(standard.T, mode="r"))) / math.sqrt(values.shape[1])


def _left_in_events(events: np.ndarray) -> np.ndarray:
    """Return what `_left` gives in an event, (C,): a median of events.

    Leads of an ECG depend on each other in one recording, and differ by an offset from one to the next.
    """
    some = (
        events[:: math.ceil(len(events) / FEW_EVENTS)]
        .astype(np.float64)
        .reshape(-1, events.shape[1], events[0, 0].size)
    )
    left = [_left(event) for event in some if event.shape[1] > 2 * len(event) and (event.std(axis=1) > 0).all()]
    return np.median(left, axis=0) if left else np.ones(events.shape[1])


def _sample(events: np.ndarray) -> np.ndarray:
    """Return the values of the channels at some positions of events (N, C, *spatial), (about ROWS, C) in float64."""
    some = events[:: math.ceil(len(events) / max(ROWS // math.prod(events.shape[2:]), MOST_EVENTS))]
    values = np.moveaxis(some, 1, -1).reshape(-1, events.shape[1])
    return values[:: math.ceil(len(values) / ROWS)].astype(np.float64)
