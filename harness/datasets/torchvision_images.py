"""Image classification sets of torchvision, by name, from files that it has downloaded before."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import Field

from harness.core.errors import DataError, DataMissing, UserError, nearest
from harness.core.settings import Count
from harness.datasets._images.image_sets import SplitSizes, read_at_once
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
MEMBERS: dict[str, tuple[tuple[int, ...], str]] = {
    "CIFAR10": (COLOUR, "cifar-10-batches-py/*"),
    "CIFAR100": (COLOUR, "cifar-100-python/*"),
    "FashionMNIST": (GREY, "FashionMNIST/raw/*"),
    "KMNIST": (GREY, "KMNIST/raw/*"),
    "MNIST": (GREY, "MNIST/raw/*"),
    "QMNIST": (GREY, "QMNIST/raw/*"),
    "STL10": ((3, 96, 96), "stl10_binary/*"),
    "SVHN": (COLOUR, "*_32x32.mat"),
    "USPS": ((1, 16, 16), "usps*.bz2"),
}
"""Class -> event shape, and where torchvision keeps the files below its root."""


class TorchvisionOptions(SplitSizes):
    """The number of images in each split."""

    validation: Count | None = Field(  # type: ignore[assignment]
        None, description="the number of training images that are set apart for validation; null: a tenth"
    )


class TorchvisionImages(Dataset, name="torchvision"):
    """One of torchvision's sets of labelled images, of which the labels are not used.

    Args:
        member: the name of its class; empty for the family of them, which has no shape.
    """

    info = DatasetInfo(
        title="Image classification sets of torchvision",
        kind="image",
        what=(
            f"torchvision:NAME, with NAME one of {', '.join(MEMBERS)}; 256 levels. Train and test are the set's; a "
            "tenth of the training images (an option) is set apart for validation by a fixed seed. The labels are not "
            "used"
        ),
        size="the set's",
        licence="the set's",
        source="https://docs.pytorch.org/vision/stable/datasets.html",
        how_to_get="torchvision.datasets.NAME(ROOT, download=True), with ROOT the data root; nothing is fetched here",
    )
    on_disk = True
    options_model = TorchvisionOptions

    def __init__(self, member: str = "") -> None:
        if member not in ("", *MEMBERS):
            raise UserError(
                f"data set torchvision:{member}: is none of torchvision's image classification sets with a train and a "
                f"test split and one size of images (give others as a folder of images, or as .npz); "
                f"{nearest(member, MEMBERS)}"
            )
        self.member = member
        self.name = f"torchvision:{member}" if member else "torchvision"

    def option_errors(self, options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return every fault of the options, of which the first is a missing name."""
        if not self.member:
            return [("", f"torchvision: name one of its sets, torchvision:NAME, with NAME one of {', '.join(MEMBERS)}")]
        return super().option_errors(options)

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the shape of the set's images."""
        self.parse(options)
        return MEMBERS[self.member][0]

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, uint8, mapped from the cache; torchvision is imported to fill it."""
        chosen, name = cast(TorchvisionOptions, self.parse(options)), self.name
        shape, pattern = MEMBERS[self.member]
        hint = f"torchvision.datasets.{self.member}(ROOT, download=True) puts the files into a data root (--data ROOT)"
        root = store.root
        sources = [] if root is None else sorted(path for path in root.glob(pattern) if path.is_file())
        if root is None or not sources:
            where = "no data root is named" if root is None else f"{root / pattern}: no such files"
            raise DataMissing(f"{name}: {where}; {hint}")

        def read() -> tuple[np.ndarray, np.ndarray]:
            try:
                return _images(self.member, root, "train"), _images(self.member, root, "test")
            except Exception as error:  # torchvision, its decoders and missing libraries raise many kinds
                reason = " ".join(str(error).split())
                raise DataError(f"{name}: {root}: torchvision cannot read it ({reason}); {hint}") from error

        title = f"{self.member} of torchvision, {'x'.join(map(str, shape[1:]))}"
        return read_at_once(store, name, title, {"torchvision": self.member}, sources, shape, read, chosen)


def _images(member: str, root: Path, split: str) -> np.ndarray:
    """Return the images (N, C, H, W) of a split."""
    import torchvision

    cls = getattr(torchvision.datasets, member)
    by_name = "split" in inspect.signature(cls).parameters
    items = cls(root, download=False, **({"split": split} if by_name else {"train": split == "train"}))
    images = np.stack([np.asarray(items[index][0]) for index in range(len(items))])
    return images[:, None] if images.ndim == 3 else np.moveaxis(images, -1, 1)
