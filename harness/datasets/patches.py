"""Real colour patches of scikit-learn's two sample photographs, from regions that share no pixel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from harness.core.settings import Count, NewSplit, Settings
from harness.datasets._store.selection import split_generator
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

SIDE = 32
PHOTOGRAPHS, HEIGHT, WIDTH = 2, 427, 640
PERIOD = 160  # columns: 96 of train, 32 of validation, 32 of test, then again
TRAIN_WIDTH = PERIOD - 2 * SIDE
STRIPS = WIDTH // PERIOD
ORDERS = (  # first columns of train, validation and test in a period; the first is that of the data set's split
    *((0, 96, 128), (0, 128, 96)),
    *((32, 0, 128), (32, 128, 0)),
    *((64, 0, 32), (64, 32, 0)),
)
HELD_OUT = PHOTOGRAPHS * STRIPS * (HEIGHT // SIDE)  # patches that tile the strips of one held-out split

HeldOut = Annotated[int, Field(ge=1, le=HELD_OUT, strict=True)]


class PatchOptions(Settings):
    """The number of patches in each split, and the seed of the train crops."""

    train: Count = Field(2000, description="the number of random crops of the train strips")
    validation: HeldOut = Field(HELD_OUT, description="the number of patches that tile the validation strips")
    test: HeldOut = Field(HELD_OUT, description="the number of patches that tile the test strips")
    seed: Annotated[int, Field(ge=0, strict=True)] = Field(0, description="the seed of the random crops")


class Patches(Dataset, name="patches"):
    """32x32 RGB patches: train crops at random places, validation and test patches without overlap."""

    info = DatasetInfo(
        title="32x32 patches of scikit-learn's two sample photographs (real)",
        kind="image",
        shape=(3, SIDE, SIDE),
        what=(
            "RGB patches of 32x32 with 256 levels of china.jpg and flower.jpg (427x640), which are cut into "
            "vertical strips: 96 columns of train, 32 of validation, 32 of test, and again; no pixel is shared. "
            f"Train patches are random crops, the {HELD_OUT} of validation and of test tile their strips. This says "
            "nothing of others"
        ),
        size="comes with scikit-learn",
        licence="CC BY 2.0; china.jpg by danielbuechele, flower.jpg by vultilion",
        source=(
            "https://www.flickr.com/photos/danielbuechele/6061409035 and "
            "https://www.flickr.com/photos/vultilion/6056698931, as in sklearn.datasets.load_sample_images"
        ),
        how_to_get="nothing to do",
    )
    options_model = PatchOptions
    imports = ("sklearn.datasets",)

    def split_fault(self, options: Mapping[str, Any], keep_test: bool = False) -> str | None:
        """Return that there is no published test split to keep, if asked for it."""
        return f"data set {self.name}: has no published test split to keep; leave keep_test out" if keep_test else None

    def load(self, store: Store, options: Mapping[str, Any], new: NewSplit | None = None) -> Splits:
        """Return the splits, uint8; in a new one the strips have another order, so that no pixel is shared again."""
        from sklearn.datasets import load_sample_images

        chosen: PatchOptions = self.parse(options)
        train, validation, test = cut_patches(np.stack(load_sample_images().images), chosen, new)
        how = "" if new is None else f"; split {new.seed}: the order of the strips is drawn in each period of them"
        return Splits(
            train=train,
            validation=validation,
            test=test,
            levels=256,
            description=(
                f"32x32 patches of two photographs (real), splits from disjoint strips of the same photographs{how}"
            ),
            test_share=SIDE / PERIOD,
        )


def cut_patches(
    photographs: np.ndarray, options: PatchOptions, new: NewSplit | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return train, validation and test patches (N, 3, 32, 32) of photographs (2, 427, 640, 3)."""
    size = (PHOTOGRAPHS, STRIPS)
    order = np.zeros(size, int) if new is None else split_generator(new.seed).integers(len(ORDERS), size=size)
    # The first columns of the strips of each split.
    trains, validations, tests = np.moveaxis(np.array(ORDERS)[order], -1, 0) + np.arange(STRIPS) * PERIOD
    windows = np.lib.stride_tricks.sliding_window_view(photographs, (SIDE, SIDE), axis=(1, 2))
    rng = np.random.Generator(np.random.PCG64(options.seed))
    photo, strip, row, column = (
        np.floor(rng.random((options.train, 4)) * [PHOTOGRAPHS, STRIPS, HEIGHT - SIDE + 1, TRAIN_WIDTH - SIDE + 1])
        .astype(int)
        .T
    )
    train = windows[photo, row, trains[photo, strip] + column]
    rows = np.arange(0, HEIGHT - SIDE + 1, SIDE)

    def tiles(columns: np.ndarray, count: int) -> np.ndarray:
        grid = windows[np.arange(PHOTOGRAPHS)[:, None, None], rows[:, None], columns[:, None]]
        tiled = grid.reshape(-1, *grid.shape[3:])
        return tiled[np.arange(count) * len(tiled) // count]  # spread evenly over both photographs

    return train, tiles(validations, options.validation), tiles(tests, options.test)
