"""Data sets by name. Importing this package needs neither torch nor scikit-learn: `load` imports what it needs."""

from harness.core.errors import UserError, nearest
from harness.datasets.arrays import Arrays
from harness.datasets.base import Dataset, DatasetInfo, Splits
from harness.datasets.cifar10 import Cifar10
from harness.datasets.digits import Digits
from harness.datasets.galaxy import Galaxy
from harness.datasets.image_folder import ImageFolder
from harness.datasets.imagenet import Imagenet32
from harness.datasets.mimic import Mimic
from harness.datasets.mnist import Mnist
from harness.datasets.own_recordings import OwnRecordings
from harness.datasets.patches import Patches
from harness.datasets.store import Store
from harness.datasets.waveforms import Waveforms

DATASETS: dict[str, Dataset] = {
    dataset.info.name: dataset
    for dataset in (
        *(Digits(), Patches(), Waveforms()),
        *(Mnist(), Cifar10(), Imagenet32(), Galaxy(), Mimic()),
        *(Arrays(), ImageFolder(), OwnRecordings()),
    )
}


def find_dataset(name: str) -> Dataset:
    """Return the data set of this name, or raise a UserError that suggests the nearest."""
    if name in DATASETS:
        return DATASETS[name]
    raise UserError(f"no data set is called {name!r}; {nearest(name, DATASETS)}")


__all__ = ["DATASETS", "Dataset", "DatasetInfo", "Splits", "Store", "find_dataset"]
