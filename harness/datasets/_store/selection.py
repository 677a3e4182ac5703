"""Assign the events of a source to splits, by their numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from harness.core.errors import DataError
from harness.core.settings import Count, NewSplit, Settings

SEED = 0  # seed of the choice of validation events, and of a subset of the events
HELD_OUT_PART = 10  # one in this many train events is validation, unless the options or the file decide otherwise
SPLITS = ("train", "validation", "test")
SPLIT_NAMES = {"train": "train", "training": "train", "test": "test", "testing": "test"}
SPLIT_NAMES |= dict.fromkeys(("validation", "val", "valid"), "validation")
"""Name of a folder, or of a cell, in lower case -> split."""
STREAM = 0x5B117  # keeps the draws of splits apart from other draws with the same seed
SHARES = (0.8, 0.1, 0.1)  # of the splits in the order of SPLITS, unless the options decide otherwise


def _at_most_all(shares: tuple[float, ...]) -> tuple[float, ...]:
    if math.fsum(shares) > 1 + 1e-9:
        raise PydanticCustomError("shares", "should sum to at most 1")
    return shares


Share = Annotated[float, Field(gt=0, lt=1, strict=True)]
Shares = Annotated[tuple[Share, Share, Share], AfterValidator(_at_most_all)]
Validation = Annotated[Count, Field(description="the number of training images that are set apart for validation")]
Test = Annotated[Count, Field(description="the number of test images that are used")]


class SplitSizes(Settings):
    """The number of images in each split of a published set with the parts "train" and "test"."""

    validation: Validation
    train: Count | None = Field(None, description="the number of the other training images that are used; null: all")
    test: Count | None = Field(None, description="the number of test images that are used; null: all")

    @property
    def limits(self) -> tuple[int | None, int, int | None]:
        """The numbers of train, validation and test images."""
        return self.train, self.validation, self.test


def share_out(name: str, total: int, shares: tuple[float, ...]) -> list[int]:
    """Return the number of events of each split, in the order of SPLITS, of `total` events.

    Raises:
        DataError: a split would have none; the message starts with `name`.
    """
    counts = [last - first for first, last in pairwise([0, *(round(total * end) for end in accumulate(shares))])]
    if 0 in counts:
        empty = SPLITS[counts.index(0)]
        raise DataError(f"{name}: {total} events in the shares {list(shares)} leave none for {empty}; give more events")
    return counts


def seeded_order(total: int, seed: int = SEED) -> np.ndarray:
    """Return 0..total-1 in an order that is a function of (total, seed) alone."""
    return np.argsort(np.random.Generator(np.random.PCG64(seed)).random(total), kind="stable")


Division = tuple[dict[str, np.ndarray], float | None, str]
"""The numbers of the events of each split; `Splits.test_share`; a phrase."""


def split_groups(
    name: str, groups: np.ndarray, shares: Sequence[float], new: NewSplit | None
) -> tuple[np.ndarray, str]:
    """Draw the split of each row such that rows of one group share theirs.

    Groups are drawn one after another until a split has its share of the rows: first for test, then for validation and
    train. If the shares sum to 1 train has all the rest, else groups that are left are of no split.

    Args:
        name: begins messages.
        groups: the number of each row's group, 0, 1, ..., (rows,).
        new: a new split; None: that of `SEED`.

    Returns:
        The place of each row's split in SPLITS, or -1, (rows,); a phrase.

    Raises:
        DataError: there are fewer than three groups.
    """
    sizes = np.bincount(groups)
    if len(sizes) < len(SPLITS):
        raise DataError(f"{name}: {len(sizes)} groups; a split needs at least one for each of {', '.join(SPLITS)}")
    seed = SEED if new is None else new.seed
    kept = new is None or new.keep_test
    split = np.full(len(sizes), -1)
    for place in reversed(range(len(SPLITS))):
        wanted = math.inf if place == 0 and math.fsum(shares) > 1 - 1e-9 else shares[place] * len(groups)
        order = seeded_order(len(sizes), SEED if SPLITS[place] == "test" and kept else seed)
        free = [group for group in order if split[group] < 0]
        for group in free[: len(free) - place]:  # the splits before it in SPLITS need a group each
            if (split == place).any() and sizes[split == place].sum() + sizes[group] / 2 > wanted:
                break
            split[group] = place
    counts = ", ".join(str((split == place).sum()) for place in range(len(SPLITS)))
    return split[groups], f"{counts} whole groups by seed {seed}"


def split_classes(classes: np.ndarray, shares: Sequence[float], new: NewSplit | None) -> tuple[np.ndarray, str]:
    """Draw the split of each event such that all splits have the same share of each class.

    Args:
        classes: the number of each event's class, 0, 1, ..., (events,).
        new: a new split; None: that of `SEED`.

    Returns: as `split_groups`.
    """
    seed = SEED if new is None else new.seed
    kept = new is None or new.keep_test
    split = np.full(len(classes), -1)
    for place in reversed(range(len(SPLITS))):
        draws = np.random.Generator(np.random.PCG64([SEED if SPLITS[place] == "test" and kept else seed, place]))
        every = place == 0 and math.fsum(shares) > 1 - 1e-9
        for number in range(classes.max() + 1):
            of_class = classes == number
            free = np.flatnonzero(of_class & (split < 0))
            # Rounded at random, so that small classes have their share on average.
            count = len(free) if every else int(shares[place] * of_class.sum() + draws.random())
            split[draws.permutation(free)[:count]] = place
    return split, f"the same shares of {classes.max() + 1} classes by seed {seed}"


def by_shares(name: str, count: int, shares: Sequence[float], shuffled: bool) -> dict[str, np.ndarray]:
    """Return the numbers of the events of each split, of `count` events by their shares, in order or by `SEED`."""
    order = seeded_order(count) if shuffled else np.arange(count)
    return dict(zip(SPLITS, np.split(order, np.cumsum(share_out(name, count, tuple(shares)))), strict=False))


def divide_as_stated(
    name: str, marks: np.ndarray, shuffled: bool, sizes: Sequence[int | None] = (None, None, None)
) -> Division:
    """Return the splits whose places in SPLITS are `marks`; without validation a tenth of train.

    `sizes` limits the rows of train, validation and test, to random ones if `shuffled`, else to the first, or to the
    last of train from which validation is taken.

    Raises:
        DataError: there are fewer rows than asked for.
    """
    parts = [np.flatnonzero(marks == place) for place in range(len(SPLITS))]
    if shuffled:
        parts = [part[seeded_order(len(part))] for part in parts]
    text = "split as stated"
    if not len(parts[1]):
        order = parts[0] if shuffled else parts[0][::-1]
        held_out = sizes[1] or max(1, len(order) // HELD_OUT_PART)
        parts[:2] = order[held_out:], order[:held_out]
        text += f", validation from train {f'by seed {SEED}' if shuffled else '(its last rows)'}"
    for split, part, size in zip(SPLITS, parts, sizes, strict=True):
        if len(part) < (size or 1):
            raise DataError(f"{name}: {len(part)} events are there for {split}; {size or 'at least 1'} asked for")
    numbers = {split: np.sort(part[:size]) for split, part, size in zip(SPLITS, parts, sizes, strict=True)}
    return numbers, None, text


def split_generator(seed: int, *more: int) -> np.random.Generator:
    """Return the generator of the split with this seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([STREAM, seed, *more])))


def shuffle_and_cut(parts: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """Return arrays of the same sizes as the parts, with all their events in a random order."""
    sizes = [len(values) for values in parts]
    order = split_generator(seed).permutation(sum(sizes))
    return [take(parts, numbers) for numbers in np.split(order, np.cumsum(sizes)[:-1])]


def take(parts: Sequence[np.ndarray], numbers: np.ndarray) -> np.ndarray:
    """Return events of the parts by their numbers in the parts one after another, which are not joined in memory."""
    taken = np.empty((len(numbers), *parts[0].shape[1:]), parts[0].dtype)
    first = 0
    for values in parts:
        inside = (first <= numbers) & (numbers < first + len(values))
        taken[inside] = values[numbers[inside] - first]
        first += len(values)
    return taken
