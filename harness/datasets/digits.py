"""Real handwritten digits, 8x8 with 17 levels, that come with scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

LEVELS = 17  # a value counts the ink pixels of a 4x4 block: 0..16
PER_CLASS = 25  # images of each digit in validation, and as many in test
SPLIT_SEED = 0
LEAK = (
    "split at random, so writers repeat across splits (62 % of test images have their nearest training image within "
    "130 places of file order, chance 14 %)"
)


class Digits(Dataset, name="digits"):
    """scikit-learn's digits: 1,297 train, 250 validation and 250 test images, each digit in equal shares.

    The split stays random although writers then repeat: by UCI's description the file holds 13 writers, without naming
    them, so a test split of consecutive images would consist of about two. All layers share the leak; reports state it.
    """

    info = DatasetInfo(
        title="Handwritten digits of scikit-learn (real)",
        kind="image",
        what=(
            "1,797 grey images of 8x8 with 17 levels (0..16): scikit-learn's copy of the test part of UCI's "
            "Optical Recognition of Handwritten Digits. Split once, with a fixed seed, into 1,297 train, "
            "250 validation and 250 test images; 25 of each digit in validation and in test. All are by 13 writers; "
            f"{LEAK}"
        ),
        size="comes with scikit-learn",
        licence="CC BY 4.0",
        source="E. Alpaydin and C. Kaynak (1998), UCI Machine Learning Repository, https://doi.org/10.24432/C50P49",
        how_to_get="nothing to do",
    )
    imports = ("harness.datasets._images.scikit_digits",)

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (1, 8, 8)."""
        return (1, 8, 8)

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8."""
        from harness.datasets._images.scikit_digits import CLASSES, IMAGES

        self.parse(options)
        images = IMAGES[:, None]
        order = np.argsort(np.random.Generator(np.random.PCG64(SPLIT_SEED)).random(len(images)), kind="stable")
        by_class = [order[CLASSES[order] == digit] for digit in range(10)]

        def part(start: int, stop: int | None) -> np.ndarray:
            return images[np.sort(np.concatenate([indices[start:stop] for indices in by_class]))]

        return Splits(
            validation=part(0, PER_CLASS),
            test=part(PER_CLASS, 2 * PER_CLASS),
            train=part(2 * PER_CLASS, None),
            levels=LEVELS,
            description=f"scikit-learn's handwritten digits (real), 8x8, 17 levels; 13 writers; {LEAK}",
        )
