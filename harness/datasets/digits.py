"""Real handwritten digits, 8x8 with 17 levels, that come with scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from harness.core.settings import Flag, NewSplit, Settings
from harness.datasets._store.selection import SEED, SPLITS, split_generator
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

LEVELS = 17  # a value counts the ink pixels of a 4x4 block: 0..16
PER_CLASS = 25  # images of each digit in validation, and as many in test
VALIDATION, TEST = SPLITS.index("validation"), SPLITS.index("test")
LEAK = (
    "split at random, so writers repeat across splits (62 % of test images have their nearest training image within "
    "130 places of file order, chance 14 %)"
)


class DigitsOptions(Settings):
    """The way in which new splits are drawn."""

    stratify: Flag = Field(
        False,
        description="whether new splits, too, have 25 images of each digit in validation and test; false: any number",
    )


class Digits(Dataset, name="digits"):
    """scikit-learn's digits: 1,297 train, 250 validation and 250 test images, each digit in equal shares.

    The split stays random although writers then repeat: by UCI's description the file holds 13 writers, without naming
    them, so a test split of consecutive images would consist of about two. All layers share the leak; reports state it.
    """

    info = DatasetInfo(
        title="Handwritten digits of scikit-learn (real)",
        kind="image",
        shape=(1, 8, 8),
        what=(
            "1,797 grey images of 8x8 with 17 levels (0..16), of UCI's Optical Recognition of Handwritten Digits: "
            "1,297 train, 250 validation and 250 test images, 25 of each digit in either. All are by 13 writers; "
            f"{LEAK}"
        ),
        size="comes with scikit-learn",
        licence="CC BY 4.0",
        source="E. Alpaydin and C. Kaynak (1998), UCI Machine Learning Repository, https://doi.org/10.24432/C50P49",
        how_to_get="nothing to do",
    )
    imports = ("harness.datasets._images.scikit_digits",)
    options_model = DigitsOptions

    def load(self, store: Store, options: Mapping[str, Any], new: NewSplit | None = None) -> Splits:
        """Return the splits, uint8; a new one is of all images pooled, or with `stratify` of those of each digit."""
        from harness.datasets._images.scikit_digits import CLASSES, IMAGES

        if new is not None and not self.parse(options).stratify:
            return self.load(store, options).redrawn(new)
        places = _places(CLASSES, new)
        train, validation, test = (IMAGES[places == place, None] for place in range(len(SPLITS)))
        description = f"scikit-learn's handwritten digits (real), 8x8, 17 levels; 13 writers; {LEAK}"
        if new is not None:
            description += f"; split {new.seed} of each digit{', test kept' * new.keep_test}"
        return Splits(train, validation, test, LEVELS, description)


def _places(classes: np.ndarray, new: NewSplit | None) -> np.ndarray:
    """Return the place of each image's split in SPLITS, drawn digit by digit."""
    kept = new is not None and new.keep_test
    places = np.where(_places(classes, None) == TEST, TEST, 0) if kept else np.zeros(len(classes), int)
    draws = np.random.Generator(np.random.PCG64(SEED)) if new is None else split_generator(new.seed)
    order = np.argsort(draws.random(len(classes)), kind="stable")
    for digit in np.unique(classes):
        of_digit = order[(classes[order] == digit) & (places[order] != TEST)]
        places[of_digit[:PER_CLASS]] = VALIDATION
        if not kept:
            places[of_digit[PER_CLASS : 2 * PER_CLASS]] = TEST
    return places
