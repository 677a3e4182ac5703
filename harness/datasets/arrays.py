"""Bring your own arrays: any .npz file with x_train, x_test and, if there is one, x_val, or with one array alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from harness.core.errors import DataError
from harness.core.settings import NewSplit
from harness.datasets._images.image_files import pool
from harness.datasets._signals.windows import Stretch, described_ring, split_ring
from harness.datasets._store.selection import (
    HELD_OUT_PART,
    SEED,
    SHARES,
    SPLITS,
    assign,
    fill,
    first_of,
    hold_out,
    seeded_order,
    share_out,
    split_classes,
    split_groups,
    take,
)
from harness.datasets._store.store import Store, Writer
from harness.datasets._values.array_options import ArrayOptions
from harness.datasets._values.encoding import Encoding, choose_encoding, identity
from harness.datasets._values.npz_arrays import NUMBERS, Npz, blocks, open_npz
from harness.datasets._values.stated_noise import noise_text
from harness.datasets._values.survey import Survey
from harness.datasets._values.tables import IDS
from harness.datasets._values.user_files import FILES, file_splits, stated_split_fault
from harness.datasets.base import Dataset, DatasetInfo, Splits

KEYS = ("x_train", "x_val", "x_test")
"""The arrays of events of train, validation and test, unless the options name others."""

Layout = Callable[[np.ndarray], np.ndarray]
"""Convert stored events to (n, C, *spatial)."""


class Arrays(Dataset, name="npz"):
    """User-supplied arrays, images or sequences."""

    info = DatasetInfo(
        title="Your own arrays, from an .npz file",
        kind="image",
        what=(
            "images (C, H, W) or sequences (C, L) of the arrays x_train, x_test and x_val, integers or floating-point "
            "numbers. Without x_val, validation is a tenth of x_train (an option). A file may also have one array, "
            "called x or the only one, which the option `shares` splits. Images are chosen by a fixed seed; sequences "
            "are taken to be in the order of time, so train comes first and test last (or shuffle: true). Values on a "
            "lattice (8-bit pixels divided by 255, converter counts times a gain) become whole numbers again, by a "
            "step that is stated or found and that every value is checked against; values on none are used as they "
            "are, without noise and without a resolution floor"
        ),
        size="the file's",
        licence="the file's",
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
        with open_npz(path, f"npz: {path}") as content:
            shapes = content.shapes()
        events = {
            key: (shape, kind)
            for key, (shape, kind) in shapes.items()
            if len(shape) in (2, 3, 4) and 0 not in shape and kind.kind in NUMBERS
        }
        if not events:
            there = ", ".join(f"{key} ({kind}, {shape})" for key, (shape, kind) in shapes.items()) or "no array"
            raise DataError(
                f"npz: {path}: has {there}; events are integers or floating-point numbers of shape (N, D), (N, C, L) "
                "or (N, C, H, W), such as x.astype('float32').reshape(-1, 1) of a single column"
            )
        options: dict[str, Any] = {"file": str(path)}
        parts = [next((key for key in events if part in key.lower()), None) for part in ("train", "val", "test")]
        named = [key for key in parts if key is not None]
        if None not in (parts[0], parts[2]):
            if named != [key for key in KEYS if key in named]:
                options["arrays"] = named
        else:
            named = [max(events, key=lambda key: math.prod(events[key][0]))]
            if len(shapes) > 1 and named != ["x"]:
                options["array"] = named[0]
            count = events[named[0]][0][:1]
            groups = [key for key, (shape, _) in shapes.items() if shape == count and IDS.search(key.replace("_", " "))]
            vectors = len(events[named[0]][0]) == 2  # rows of a table, rarely in the order of time
            options |= {"groups": groups[0]} if groups else {"shuffle": True} if vectors else {}
        (_, *axes), kind = events[named[0]]
        if len(axes) == 1:
            return options | {"kind": "sequence", "shape": [axes[0], 1]}
        if len(axes) == 2 and kind == np.uint8:
            return options | {"shape": [1, *axes]}
        last = axes[-1] < axes[0] if len(axes) == 2 else axes[-1] in (1, 3, 4)
        options |= {"kind": "sequence"} if len(axes) == 2 else {}
        options |= {"layout": "channels_last"} if last else {}
        return options | {"shape": [axes[-1], *axes[:-1]] if last else axes}

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the shape that the options state."""
        return cast(ArrayOptions, self.parse(options)).shape

    def kind(self, options: Mapping[str, Any]) -> Literal["image", "sequence"]:
        """Return the kind that the options state."""
        return cast(ArrayOptions, self.parse(options)).kind

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, mapped from the cache."""
        return self._splits(store, cast(ArrayOptions, self.parse(options)), None)

    def _splits(self, store: Store, chosen: ArrayOptions, new: NewSplit | None) -> Splits:
        def build(paths: Sequence[Path], writer: Writer) -> None:
            _build(paths, chosen, writer, new)

        return file_splits(store, self.name, chosen, build, new)

    def split_fault(self, options: Mapping[str, Any], keep_test: bool = False) -> str | None:
        """Return why a split that files state is not drawn anew."""
        chosen = cast(ArrayOptions, self.parse(options))
        if chosen.test_file is None:
            return None
        return stated_split_fault(self.name, chosen.file, chosen.shuffled, keep_test)

    def resplit(self, store: Store, options: Mapping[str, Any], new: NewSplit) -> Splits:
        """Return a new split: groups or classes drawn anew, events pooled, or closed to a ring and rotated.

        One event is left out between the splits of events in time.
        """
        chosen = cast(ArrayOptions, self.parse(options))
        if chosen.groups is not None or chosen.stratify is not None:
            return self._splits(store, chosen, new)
        if chosen.shuffled:
            return super().resplit(store, options, new)
        splits = self.loaded(store, options)
        parts = splits.parts()
        total = sum(map(len, parts.values()))
        validation, test = (len(parts[name]) / total for name in ("validation", "test"))
        drawn, test_share = split_ring([Stretch(0, np.arange(total)[None])], validation, test, 1, new)
        if not all(drawn.values()):
            raise DataError(
                f"{self.name}: {total} events are too few for split {new.seed}, which leaves one out between train, "
                "validation and test; give more events"
            )
        events = [take(list(parts.values()), np.concatenate([run.values[0] for run in drawn[name]])) for name in SPLITS]
        return replace(
            splits,
            train=events[0],
            validation=events[1],
            test=events[2],
            description=f"{splits.description}; {described_ring(new)}, with one event between the splits",
            test_share=test_share,
        )


def _build(paths: Sequence[Path], chosen: ArrayOptions, writer: Writer, new: NewSplit | None) -> None:
    """Read the files once to survey their values, unless they are plain pixels, and once to encode them.

    A new split is of groups or classes; those of others are drawn from the arrays that this has built.
    """
    name = f"npz: {', '.join(map(str, paths))}"
    with ExitStack() as opened:
        npz, *others = (opened.enter_context(open_npz(path, f"npz: {path}")) for path in paths)
        if others:
            keys = KEYS if len(others) == 2 else (KEYS[0], KEYS[-1])
            arrays = {key: each.array(_only(each, chosen)) for key, each in zip(keys, (npz, *others), strict=True)}
        else:
            arrays = {key: npz.array(named) for key, named in _names(npz, chosen).items()}
        to_events = {key: _layout(f"{name}: {key}", array.shape[1:], chosen) for key, array in arrays.items()}
        encoding, kept = _encoding(name, arrays, to_events, chosen)
        test_share = None
        if chosen.groups is None and chosen.stratify is None:
            splits, held_out = _choice(name, {key: int(mask.sum()) for key, mask in kept.items()}, chosen)
        else:
            splits, held_out, test_share = _choice_of_labels(npz, chosen, kept, new)

        def events(key: str) -> Iterator[np.ndarray]:
            first = 0
            for block in blocks(arrays[key]):
                whole = kept[key][first : first + len(block)]
                if not whole.all():  # another event in place of a missing one keeps the numbers of the others
                    block = np.where(whole.reshape(-1, *[1] * (block.ndim - 1)), block, block[whole.argmax()])
                if whole.any():
                    yield _pooled(encoding.encode(to_events[key](block), key, first)[whole], chosen.pool)
                first += len(block)

        for key in arrays:
            fill(writer, splits[key], chosen.shape, encoding.dtype, events(key))
    writer.notes = {
        "levels": encoding.levels,
        **encoding.facts(chosen.kind),
        "test_share": test_share,
        "description": f"{', '.join(path.name for path in paths)}: {_described(chosen, encoding)}; {held_out}",
        "left_out": [
            f"dropped: {(~mask).sum():,} of {len(mask):,} events of {key} with a missing value"
            for key, mask in kept.items()
            if not mask.all()
        ],
    }


def _names(npz: Npz, chosen: ArrayOptions) -> dict[str, str]:
    """Return the name of the array of all events by itself, or those of each split by the names in `KEYS`."""
    keys = KEYS if len(chosen.arrays or ()) == len(KEYS) else (KEYS[0], KEYS[-1])
    named = dict(zip(keys, chosen.arrays or (), strict=False))
    if not named and chosen.array is None and {"x_train", "x_test"} & set(npz.keys):
        named = {key: key for key in KEYS if key in npz.keys or key != "x_val"}
    if named:
        if chosen.shares is not None:
            raise DataError(f"{npz.name}: `shares` split one array, and there is a split already; leave them out")
        return named
    name = _only(npz, chosen)
    if {chosen.train, chosen.validation, chosen.test} != {None}:
        raise DataError(f"{npz.name}: has one array, whose splits have `shares`; leave out train, validation and test")
    return {name: name}


def _only(npz: Npz, chosen: ArrayOptions) -> str:
    """Return the name of the array of all events of a file."""
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
        hint = f"; layout: {alternative} would fit" * fits
        raise DataError(
            f"{name} holds events of shape {event}; shape = {chosen.shape} with layout: {chosen.layout}"
            f"{f' and pool: {chosen.pool}' if chosen.pool > 1 else ''} asks for "
            f"{' or '.join(map(str, accepted))}{hint}"
        )
    if event != accepted[0]:
        return lambda block: block[..., None] if len(event) == 1 and accepted[0][-1] == 1 else block[:, None]
    if chosen.layout == "channels_last":
        return lambda block: np.moveaxis(block, -1, 1)
    return lambda block: block


def _encoding(
    name: str,
    arrays: Mapping[str, np.ndarray],
    to_events: Mapping[str, Layout],
    chosen: ArrayOptions,
) -> tuple[Encoding, dict[str, np.ndarray]]:
    """Return the encoding of the values of all arrays as whole numbers, and a mask of the events that are used.

    Raises:
        DataError: values are not finite; the message names all arrays that have such values.
    """
    dtypes = {array.dtype for array in arrays.values()}
    if len(dtypes) > 1:
        each = ", ".join(f"{key} {array.dtype}" for key, array in arrays.items())
        raise DataError(f"{name}: {each}; all arrays must be of one type")
    dtype = dtypes.pop()
    if dtype == np.uint8 and chosen.kind == "image" and chosen.step is None and chosen.noise is None:
        every = {key: np.ones(len(array), bool) for key, array in arrays.items()}
        return identity(name, chosen.levels or 256, chosen.shape[0]), every
    total = sum(len(array) for array in arrays.values()) * int(np.prod(chosen.shape[1:])) * chosen.pool**2
    survey = Survey(chosen.shape[0], dtype, total)
    kept, faults = {}, []
    for key, array in arrays.items():
        kept[key] = np.ones(len(array), bool)
        wrong, seen, at = 0, 0, ""
        for block in blocks(array):
            finite = np.isfinite(block)
            whole = finite.reshape(len(block), -1).all(axis=1)
            faulty = ~finite & ~np.isnan(block) if chosen.missing == "drop" else ~finite
            if faulty.any():
                index = np.argwhere(faulty)[0]
                at = at or f"{block[tuple(index)]} at {[seen + int(index[0]), *map(int, index[1:])]}"
                wrong += int(faulty.sum())
            elif whole.any() and not wrong:
                survey.add(to_events[key](block[whole]))
            kept[key][seen : seen + len(block)] = whole
            seen += len(block)
        if wrong:
            hint = "drop or fill such events, or say missing: drop where they are NaN"
            faults.append(f"{name}: {key}: {wrong} values are not finite, the first {at}; {hint}")
    if faults:
        raise DataError("\n".join(faults))
    if not survey.count:
        raise DataError(f"{name}: {' and '.join(arrays)} are empty, or have no event without a missing value")
    return choose_encoding(name, survey, chosen.kind, chosen.step, chosen.levels, chosen.noise), kept


def _choice(name: str, counts: Mapping[str, int], chosen: ArrayOptions) -> tuple[dict[str, np.ndarray], str]:
    """Return, for each array, the place of the split of its `counts` events in SPLITS, or -1; a sentence about it."""
    shuffled = chosen.shuffled
    orders = {key: seeded_order(count) if shuffled else np.arange(count) for key, count in counts.items()}
    if len(counts) == 1:
        [(key, order)] = orders.items()
        shares = chosen.shares or SHARES
        parts = dict(zip(SPLITS, share_out(f"{name}: {key}", counts[key], shares), strict=True))
        how = f"by seed {SEED}" if shuffled else "in order"
        sentence = f"train, validation and test are the shares {', '.join(map(str, shares))} of {key}, {how}"
        return {key: assign(order, parts)}, sentence
    if "x_val" in counts:
        asked = {"x_train": ("train", chosen.train), "x_val": ("validation", chosen.validation)}
        asked["x_test"] = ("test", chosen.test)
        splits = {key: first_of(f"{name}: {key}", orders[key], n, split) for key, (split, n) in asked.items()}
        return splits, "validation from x_val"
    test = first_of(f"{name}: x_test", orders["x_test"], chosen.test, "test")
    order = orders["x_train"] if shuffled else orders["x_train"][::-1]
    size = chosen.validation or max(1, counts["x_train"] // HELD_OUT_PART)
    train = hold_out(f"{name}: x_train", order, chosen.train, size)
    how = f"by seed {SEED}" if shuffled else "its last events"
    return {"x_test": test, "x_train": train}, f"validation from x_train, {how}"


def _choice_of_labels(
    npz: Npz, chosen: ArrayOptions, kept: Mapping[str, np.ndarray], new: NewSplit | None
) -> tuple[dict[str, np.ndarray], str, float | None]:
    """Return the splits of the events that are used by their groups or classes; a sentence; the share of test."""
    if len(kept) > 1:
        raise DataError(f"{npz.name}: has a split already; groups and stratify are for a file with one array of events")
    [(key, used)] = kept.items()
    labels, shares = str(chosen.groups or chosen.stratify), chosen.shares or SHARES
    numbers = np.unique(npz.labels(labels, len(used))[used], return_inverse=True)[1]
    if chosen.groups is None:
        split, share, text = split_classes(numbers, shares, new)
    else:
        split, share, text = split_groups(f"{npz.name}: {key}", numbers, shares, new)
    return {key: split}, f"train, validation and test are {text} of {labels}", share


def _pooled(events: np.ndarray, factor: int) -> np.ndarray:
    """Return images (n, C, H, W) averaged over squares: rounded where they are whole numbers."""
    if factor == 1:
        return events
    if events.dtype.kind in "iu":
        return pool(events, factor)
    n, channels, height, width = events.shape
    return events.reshape(n, channels, height // factor, factor, width // factor, factor).mean(axis=(3, 5))


def _described(chosen: ArrayOptions, encoding: Encoding) -> str:
    parts = [f"{chosen.kind}s {'x'.join(map(str, chosen.shape))}"]
    if encoding.levels is not None:
        parts.append(f"{encoding.levels} levels")
    if encoding.noise is not None:
        parts.append(noise_text(encoding).removeprefix("; "))
    elif encoding.lattices is None:
        parts.append("values on no lattice")
    elif chosen.kind == "image":
        steps = {lattice.step for lattice in encoding.lattices}
        if steps != {1.0}:
            parts.append(f"one level is {' or '.join(f'{step:.6g}' for step in sorted(steps))} in the file")
    if chosen.pool > 1:
        parts.append(f"means of {chosen.pool} x {chosen.pool} pixels")
    return ", ".join(parts)
