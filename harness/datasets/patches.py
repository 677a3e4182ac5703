"""Real colour patches of scikit-learn's two sample photographs, from regions that share no pixel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

import numpy as np
from pydantic import Field

from harness.core.settings import Count, Settings
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

SIDE = 32
PHOTOGRAPHS, HEIGHT, WIDTH = 2, 427, 640
PERIOD = 160  # columns: 96 of train, 32 of validation, 32 of test, then again
TRAIN_WIDTH = PERIOD - 2 * SIDE
STRIPS = WIDTH // PERIOD
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
        what=(
            "RGB patches of 32x32 with 256 levels of china.jpg and flower.jpg (427x640). Both photographs are "
            "cut into vertical strips: 96 columns of train, 32 of validation, 32 of test, and again; no pixel "
            f"is shared. Train patches are random crops, the {HELD_OUT} of validation and of test tile their "
            "strips. All splits show the same two photographs: this says nothing of other photographs"
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

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (3, 32, 32)."""
        return (3, SIDE, SIDE)

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8."""
        from sklearn.datasets import load_sample_images

        chosen = cast(PatchOptions, self.parse(options))
        train, validation, test = cut_patches(np.stack(load_sample_images().images), chosen)
        return Splits(
            train=train,
            validation=validation,
            test=test,
            levels=256,
            description="32x32 patches of two photographs (real), splits from disjoint strips of the same photographs",
        )


def cut_patches(photographs: np.ndarray, options: PatchOptions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return train, validation and test patches (N, 3, 32, 32) of photographs (2, 427, 640, 3)."""
    windows = np.lib.stride_tricks.sliding_window_view(photographs, (SIDE, SIDE), axis=(1, 2))
    rng = np.random.Generator(np.random.PCG64(options.seed))
    photo, strip, row, column = (
        np.floor(rng.random((options.train, 4)) * [PHOTOGRAPHS, STRIPS, HEIGHT - SIDE + 1, TRAIN_WIDTH - SIDE + 1])
        .astype(int)
        .T
    )
    train = windows[photo, row, strip * PERIOD + column]

    def tiles(first_column: int, count: int) -> np.ndarray:
        grid = windows[:, : HEIGHT - SIDE + 1 : SIDE, first_column::PERIOD]
        tiled = grid.reshape(-1, *grid.shape[3:])
        return tiled[np.arange(count) * len(tiled) // count]  # spread evenly over both photographs

    return train, tiles(TRAIN_WIDTH, options.validation), tiles(TRAIN_WIDTH + SIDE, options.test)
