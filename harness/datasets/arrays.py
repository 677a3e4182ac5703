"""Bring your own arrays: any .npz file with x_train, x_test and, if there is one, x_val, or with one array alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import DataError
from harness.core.settings import NewSplit
from harness.datasets._images.image_files import pool
from harness.datasets._store.selection import SPLITS, divide_as_stated, take
from harness.datasets._store.store import Store, Writer
from harness.datasets._values.encoding import Encoding, choose_encoding, pixels
from harness.datasets._values.file_options import ArrayOptions
from harness.datasets._values.lattice import Survey
from harness.datasets._values.tables import IDS
from harness.datasets._values.user_files import FILES, divide, file_splits, rotate, stated_split_fault
from harness.datasets.base import Dataset, DatasetInfo, Splits

BLOCK = 8 << 20  # bytes of the events that are converted together, about
LABEL = 1 << 10  # bytes of a text
NUMBERS = "uif"  # kinds of dtype: unsigned, signed, floating
KEYS = {"train": "x_train", "validation": "x_val", "test": "x_test"}
"""Split -> the array of its events, unless the options name others."""

Layout = Callable[[np.ndarray], np.ndarray]
"""Convert stored events to (n, C, *spatial)."""


class Arrays(Dataset, name="npz"):
    """User-supplied arrays, images or sequences."""

    info = DatasetInfo(
        title="Your own arrays, from an .npz file",
        kind="image",
        what=(
            "images (C, H, W) or sequences (C, L) of the arrays x_train, x_test and perhaps x_val, or of one array, "
            "which `shares` split: images by a fixed seed, sequences in the order of time. Values on a lattice "
            "(8-bit pixels divided by 255, converter counts times a gain) become whole numbers again; others are "
            "used as they are, without noise and without a resolution floor"
        ),
        source="the file that the option `file` names",
        how_to_get=(
            "numpy.savez('mine.npz', x_train=..., x_test=...) or numpy.savez('mine.npz', x=...), beside the suite; "
            "options: {file: mine.npz, shape: [3, 32, 32]}"
        ),
    )
    on_disk = True
    paths = FILES
    options_model = ArrayOptions

    def propose(self, path: Path) -> dict[str, Any] | None:
        """Return the options of a file: given splits, or the array of the most values; its axes by their sizes."""
        if not path.is_file() or path.suffix not in (".npz", ".npy"):
            return None
        npz = Npz(path)
        arrays = {key: npz.read(key) for key in npz.keys}
        numbers = {key: array for key, array in arrays.items() if array.size and array.dtype.kind in NUMBERS}
        events = [key for key, array in numbers.items() if array.ndim in (2, 3, 4)]
        if not events:
            raise DataError(
                f"{npz.name}: has no array of integers or floating-point numbers of shape (N, D), (N, C, L) or "
                "(N, C, H, W), such as x.astype('float32').reshape(-1, 1) of a single column"
            )
        options: dict[str, Any] = {"file": str(path)}
        parts = [next((key for key in events if part in key.lower()), None) for part in ("train", "val", "test")]
        named = [key for key in parts if key is not None]
        if None not in (parts[0], parts[2]):
            if named != [key for key in KEYS.values() if key in named]:
                options["arrays"] = named
        else:
            named = [max(events, key=lambda key: arrays[key].size)]
            options |= {"array": named[0]} if len(arrays) > 1 and named != ["x"] else {}
            count = arrays[named[0]].shape[:1]
            groups = [key for key, array in arrays.items() if array.shape == count and IDS.search(key)]
            vectors = arrays[named[0]].ndim == 2  # rows of a table, rarely in the order of time
            options |= {"groups": groups[0]} if groups else {"shuffle": True} if vectors else {}
        axes = arrays[named[0]].shape[1:]
        if len(axes) == 1:
            return options | {"kind": "sequence", "shape": [axes[0], 1]}
        if len(axes) == 2 and arrays[named[0]].dtype == np.uint8:
            return options | {"shape": [1, *axes]}
        last = axes[-1] < axes[0] if len(axes) == 2 else axes[-1] in (1, 3, 4)
        options |= {"kind": "sequence"} if len(axes) == 2 else {}
        options |= {"layout": "channels_last"} if last else {}
        return options | {"shape": [axes[-1], *axes[:-1]] if last else [*axes]}

    def load(self, store: Store, options: Mapping[str, Any], new: NewSplit | None = None) -> Splits:
        """Return the splits, mapped from the cache.

        For a new split groups or classes are drawn anew, events pooled, or closed to a ring and rotated; then one event
        is left out between the splits.
        """
        chosen: ArrayOptions = self.parse(options)
        labelled = chosen.groups is not None or chosen.stratify is not None
        build = partial(_build, chosen, new)
        splits = file_splits(store, self.name, chosen, build, new if labelled else None)
        if new is None or labelled:
            return splits
        return splits.redrawn(new) if chosen.shuffled else _rotated(self.name, splits, new)

    def split_fault(self, options: Mapping[str, Any], keep_test: bool = False) -> str | None:
        """Return why a split that files state is not drawn anew."""
        chosen: ArrayOptions = self.parse(options)
        if chosen.test_file is None:
            return None
        return stated_split_fault(self.name, chosen.file, chosen.shuffled, keep_test)


def _rotated(name: str, splits: Splits, new: NewSplit) -> Splits:
    """Return a new split of events in time, closed to a ring and rotated."""
    parts = list(splits.parts().values())
    total = sum(map(len, parts))
    numbers, test_share, how = rotate([np.arange(total)], len(parts[1]) / total, len(parts[2]) / total, 1, new)
    if not all(map(len, numbers.values())):
        raise DataError(
            f"{name}: {total} events are too few for split {new.seed}, which leaves one out between train, "
            "validation and test; give more events"
        )
    text = f"{splits.description}; {how}, with one event between the splits"
    facts: dict[str, Any] = {split: take(parts, chosen) for split, chosen in numbers.items()}
    return replace(splits, description=text, test_share=test_share, **facts)


def _build(chosen: ArrayOptions, new: NewSplit | None, paths: Sequence[Path], writer: Writer) -> None:
    """Read the files once to survey their values, unless they are plain pixels, and once to encode them.

    A new split is of groups or classes; those of others are drawn from the arrays that this has built.
    """
    name = f"npz: {', '.join(map(str, paths))}"
    files = [Npz(path) for path in paths]
    arrays = _arrays(files, chosen)
    to_events = {key: _layout(f"{name}: {key}", array.shape[1:], chosen) for key, array in arrays.items()}
    encoding, kept = _encoding(name, arrays, to_events, chosen)
    used = np.flatnonzero(np.concatenate(list(kept.values())))
    if len(arrays) > 1:
        places = np.repeat([SPLITS.index(key) for key in arrays], [len(array) for array in arrays.values()])
        sizes = (chosen.train, chosen.validation, chosen.test)
        division = divide_as_stated(name, places[used], chosen.shuffled, sizes)
    else:
        marks, label = None, chosen.groups or chosen.stratify
        if label is not None:
            labels = files[0].labels(str(label), len(kept[next(iter(kept))]))
            marks = np.unique(labels[used], return_inverse=True)[1]
        division = divide(name, len(used), marks, chosen, chosen.shuffled, new)
    numbers, test_share, how = division
    to_event, every = next(iter(to_events.values())), list(arrays.values())
    events_at_once = _at_once(every[0])
    for split, events in numbers.items():
        rows = used[np.sort(events)]
        target = writer.create(split, (len(rows), *chosen.shape), encoding.dtype)
        for first in range(0, len(rows), events_at_once):
            some = rows[first : first + events_at_once]
            values = encoding.encode(to_event(take(every, some)), some)
            target[first : first + len(some)] = pool(values, chosen.pool)
    writer.notes = {
        "levels": encoding.levels,
        **encoding.facts(chosen.kind),
        "test_share": test_share,
        "description": f"{', '.join(path.name for path in paths)}: {_described(chosen, encoding)}; {how}",
        "left_out": [
            f"dropped: {(~mask).sum():,} of {len(mask):,} events of {key} with a missing value"
            for key, mask in kept.items()
            if not mask.all()
        ],
    }


@contextmanager
def _reading(name: str, hint: str) -> Iterator[None]:
    """Turn any exception from reading a damaged archive into a DataError that starts with `name`."""
    try:
        yield
    except Exception as error:  # zipfile, its decompressors and numpy raise many kinds on a damaged file
        reason = str(error).partition(". If you trust")[0] or type(error).__name__  # numpy proposes to unpickle
        message = f"{name}: cannot be read ({reason}): damaged, truncated, or not of this form; {hint}"
        raise DataError(message) from error


class Npz:
    """An .npz archive, whose arrays are read when they are asked for; a .npy file is one array `x`, mapped into memory.

    Nothing is unpickled.
    """

    def __init__(self, path: Path) -> None:
        self.name = f"npz: {path}"
        with _reading(self.name, "it must be an .npz or .npy file, as numpy.savez or numpy.save writes it"):
            content = np.load(path, mmap_mode="r", allow_pickle=False)
        self._content: Mapping[str, np.ndarray] = {"x": content} if isinstance(content, np.ndarray) else content

    @property
    def keys(self) -> list[str]:
        """The names of the arrays."""
        return list(self._content)

    def array(self, key: str) -> np.ndarray:
        """Return an array of numbers (N, *event) in the byte order of the machine; raise DataError if it is another."""
        values, name = self.read(key), f"{self.name}: {key}"
        if values.dtype.kind not in NUMBERS or values.dtype.itemsize > 8:
            rule = "it must hold integers or floating-point numbers of at most 64 bits: convert it by astype"
            raise DataError(f"{name} holds {values.dtype}; {rule}")
        if values.ndim < 2:
            raise DataError(
                f"{name} has shape {values.shape}; the first axis counts the events, the others are the event's"
            )
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def labels(self, key: str, count: int) -> np.ndarray:
        """Return the array (count,) of numbers or texts, one for each event; raise DataError if it is another."""
        values = self.read(key)
        if values.shape != (count,) or values.dtype.kind not in f"{NUMBERS}US" or values.dtype.itemsize > LABEL:
            rule = f"it must be a number or a short text for each of {count:,} events"
            raise DataError(f"{self.name}: {key} is {values.dtype} of shape {values.shape}; {rule}")
        return values

    def read(self, key: str) -> np.ndarray:
        """Return an array of any kind; raise DataError if there is none of this name, or it cannot be read."""
        if key not in self._content:
            raise DataError(f"{self.name}: has no array {key!r}; it has {', '.join(self.keys) or 'none'}")
        hint = "get the file again, or convert an array of objects to numbers by astype before it is saved"
        with _reading(f"{self.name}: {key}", hint):
            if not isinstance(values := self._content[key], np.ndarray):
                raise ValueError("it has no header of an array")
            return values


def _arrays(files: Sequence[Npz], chosen: ArrayOptions) -> dict[str, np.ndarray]:
    """Return the arrays of the splits by the names of these, or the one of all events by its own."""
    npz, *others = files
    if others:
        names = SPLITS if len(others) == 2 else SPLITS[::2]
        return {name: each.array(_only(each, chosen)) for name, each in zip(names, files, strict=True)}
    if chosen.arrays is not None:
        keys = dict(zip(SPLITS if len(chosen.arrays) == 3 else SPLITS[::2], chosen.arrays, strict=True))
    elif chosen.array is None and {KEYS["train"], KEYS["test"]} & set(npz.keys):
        keys = {split: key for split, key in KEYS.items() if key in npz.keys or split != "validation"}
    else:
        if {chosen.train, chosen.validation, chosen.test} != {None}:
            hint = "leave out train, validation and test"
            raise DataError(f"{npz.name}: has one array, whose splits have `shares`; {hint}")
        name = _only(npz, chosen)
        return {name: npz.array(name)}
    for option in ("shares", "groups", "stratify"):
        if getattr(chosen, option) is not None:
            raise DataError(f"{npz.name}: has a split already; `{option}` is for one array of events: leave it out")
    return {split: npz.array(key) for split, key in keys.items()}


def _only(npz: Npz, chosen: ArrayOptions) -> str:
    if chosen.array is None and "x" not in npz.keys and len(npz.keys) != 1:
        raise DataError(
            f"{npz.name}: has the arrays {', '.join(npz.keys) or '(none)'}; say which hold events: array: NAME for one "
            "that is then split, or arrays: [NAME, NAME] for train and test"
        )
    return chosen.array or ("x" if "x" in npz.keys else npz.keys[0])


def _layout(name: str, event: tuple[int, ...], chosen: ArrayOptions) -> Layout:
    accepted = chosen.stored()
    if event not in accepted:
        alternative = "channels_last" if chosen.layout == "channels_first" else "channels_first"
        fits = event in chosen.model_copy(update={"layout": alternative}).stored()
        raise DataError(
            f"{name} holds events of shape {event}; shape = {chosen.shape} with layout: {chosen.layout}"
            f"{f' and pool: {chosen.pool}' if chosen.pool > 1 else ''} asks for "
            f"{' or '.join(map(str, accepted))}{f'; layout: {alternative} would fit' * fits}"
        )
    if event != accepted[0]:
        return lambda block: block[..., None] if len(event) == 1 and accepted[0][-1] == 1 else block[:, None]
    if chosen.layout == "channels_last":
        return lambda block: np.moveaxis(block, -1, 1)
    return lambda block: block


def _encoding(
    name: str, arrays: Mapping[str, np.ndarray], to_events: Mapping[str, Layout], chosen: ArrayOptions
) -> tuple[Encoding, dict[str, np.ndarray]]:
    """Return the encoding of the values of all arrays as whole numbers, and a mask of the events that are used."""
    dtypes = {array.dtype for array in arrays.values()}
    if len(dtypes) > 1 or len({array.shape[1:] for array in arrays.values()}) > 1:
        each = ", ".join(f"{key} {array.dtype} {array.shape[1:]}" for key, array in arrays.items())
        raise DataError(f"{name}: {each}; the events of all arrays must be of one type and shape")
    dtype = dtypes.pop()
    if dtype == np.uint8 and chosen.kind == "image" and chosen.step is None and chosen.noise is None:
        return pixels(name, chosen.shape[0]), {key: np.ones(len(array), bool) for key, array in arrays.items()}
    total = sum(len(array) for array in arrays.values()) * int(np.prod(chosen.shape[1:])) * chosen.pool**2
    survey, kept = Survey(chosen.shape[0], dtype, total), {}
    for key, array in arrays.items():
        kept[key] = np.ones(len(array), bool)
        for start in range(0, len(array), _at_once(array)):
            block = array[start : start + _at_once(array)]
            finite = np.isfinite(block)
            faulty = ~finite & ~np.isnan(block) if chosen.missing == "drop" else ~finite
            if faulty.any():
                first, *at = np.argwhere(faulty)[0].tolist()
                raise DataError(
                    f"{name}: {key}: {block[first, *at]} at {[start + first, *at]} is not finite; drop "
                    "or fill such events, or say missing: drop where they are NaN",
                    {"missing": "drop"} if np.isnan(block[faulty]).all() else None,
                )
            whole = finite.reshape(len(block), -1).all(axis=1)
            kept[key][start : start + len(block)] = whole
            if whole.any():
                survey.add(to_events[key](block[whole]))
    if not survey.count:
        raise DataError(f"{name}: {' and '.join(arrays)} are empty, or have no event without a missing value")
    return choose_encoding(name, survey, chosen.kind, chosen.step, chosen.noise), kept


def _at_once(array: np.ndarray) -> int:
    """Return the number of events of an array that are converted together."""
    return max(1, BLOCK // max(1, array[:1].nbytes))


def _described(chosen: ArrayOptions, encoding: Encoding) -> str:
    parts = [f"{chosen.kind}s {'x'.join(map(str, chosen.shape))}"]
    if encoding.levels is not None:
        parts.append(f"{encoding.levels} levels")
    if encoding.noise is not None:
        parts.append(encoding.noise_text.removeprefix("; "))
    elif encoding.lattices is None:
        parts.append("values on no lattice")
    elif chosen.kind == "image" and (steps := sorted({lattice.step for lattice in encoding.lattices})) != [1.0]:
        parts.append(f"one level is {' or '.join(f'{step:.6g}' for step in steps)} in the file")
    if chosen.pool > 1:
        parts.append(f"means of {chosen.pool} x {chosen.pool} pixels")
    return ", ".join(parts)
