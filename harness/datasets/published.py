"""The data sets of the published comparison: what they are, and what to get. Their loaders are not here yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from harness.datasets.base import Dataset, DatasetInfo, Splits
from harness.datasets.store import Store
from harness.errors import DataMissing


class Published(Dataset):
    """A data set of known shape that this version cannot load."""

    def __init__(self, info: DatasetInfo, shape: tuple[int, ...]) -> None:
        self.info = info
        self._shape = shape

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """The event shape of the published experiments."""
        return self._shape

    def check(self, store: Store, options: Mapping[str, Any]) -> None:
        """Raise DataMissing, always."""
        self.parse(options)
        self._missing()

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Raise DataMissing, always."""
        self._missing()

    def _missing(self) -> NoReturn:
        raise DataMissing(
            f"{self.info.name}: the loader is not part of this version; what to get: {self.info.how_to_get} "
            f"({self.info.source}; {self.info.size}; licence: {self.info.licence}). "
            "The profiles smoke and quick run without it"
        )


PUBLISHED = (
    Published(
        DatasetInfo(
            name="mnist",
            title="MNIST handwritten digits",
            kind="image",
            what="grey images of 28x28, 256 levels; 60,000 train (validation is taken from them), 10,000 test",
            size="12 MB",
            licence="none stated at the source; usually cited as CC BY-SA 3.0",
            source="Y. LeCun, C. Cortes, C. Burges; files at https://ossci-datasets.s3.amazonaws.com/mnist/",
            how_to_get="the four files *-ubyte.gz, into MNIST/raw/ of the data root",
        ),
        (1, 28, 28),
    ),
    Published(
        DatasetInfo(
            name="cifar10",
            title="CIFAR-10 colour images",
            kind="image",
            what="RGB images of 32x32, 256 levels; 50,000 train (validation is taken from them), 10,000 test",
            size="163 MB",
            licence="none stated; cite A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images",
            source="https://www.cs.toronto.edu/~kriz/cifar.html",
            how_to_get="cifar-10-python.tar.gz, unpacked into the data root",
        ),
        (3, 32, 32),
    ),
    Published(
        DatasetInfo(
            name="imagenet32",
            title="ImageNet, 32x32",
            kind="image",
            what=(
                "RGB images of 32x32, 256 levels; 1,281,149 train and 49,999 held-out images, down-sampled as by "
                "van den Oord et al. (2016). Other down-sampled versions exist, with other numbers"
            ),
            size="about 4 GB",
            licence="ImageNet terms of access: non-commercial research and education",
            source="A. van den Oord et al. (2016), Pixel RNN; https://image-net.org (registration)",
            how_to_get="the down-sampled images that the Glow and Emerging convolutions code calls imagenet-oord",
        ),
        (3, 32, 32),
    ),
    Published(
        DatasetInfo(
            name="galaxy",
            title="Galaxy images, 64x64",
            kind="image",
            what="RGB survey images of non-interacting galaxies, resized to 64x64, 256 levels; 5,000 train, 5,000 test",
            size="10,000 images",
            licence="see the source; image terms of the Sloan Digital Sky Survey",
            source="S. Ackermann et al. (2018), MNRAS 479, 415; https://github.com/SpaceML/merger_transfer_learning",
            how_to_get="the folder galaxy_mergers/noninteracting (training, validation, test)",
        ),
        (3, 64, 64),
    ),
    Published(
        DatasetInfo(
            name="mimic",
            title="MIMIC-III waveforms, PPG and ABP",
            kind="sequence",
            what=(
                "windows of 1,024 samples (8.2 s at 125 Hz) of photoplethysmogram and arterial blood pressure, "
                "one data set per patient: records 3000063, 3000393 and 3000397"
            ),
            size="about 10 million samples per record",
            licence="as PhysioNet states it; open access",
            source="B. Moody et al. (2020), MIMIC-III Waveform Database 1.0, https://doi.org/10.13026/c2607m",
            how_to_get="the three records (.hea and .dat files) from https://physionet.org/content/mimic3wdb/1.0/",
        ),
        (2, 1024),
    ),
)
