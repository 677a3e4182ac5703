"""Data sets, one per file, behind one interface.

Importing this package registers the data set of every file in it: to add a data set, add a file. It needs neither
torch nor scikit-learn: `load` imports what it needs.
"""

from importlib import import_module
from inspect import getfile
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from harness.core.errors import UserError
from harness.core.settings import NewSplit
from harness.core.third_party import resolve_class, third_party_errors
from harness.datasets._store.store import Store
from harness.datasets._values.lattice import Lattice
from harness.datasets.base import DATASETS, Dataset, DatasetInfo, Splits

for _module in sorted(module.name for module in iter_modules(__path__) if not module.ispkg):
    import_module(f"{__name__}.{_module}")


def find_dataset(spec: str, folder: Path | None = None) -> Dataset:
    """Return the data set that `spec` names.

    It is a registered name, ``FILE.py:CLASS`` or ``package.module:CLASS``. A relative
    FILE.py is looked for in `folder` (the suite's), then in the working directory.

    Raises:
        UserError: it does not exist; see `harness.core.third_party.resolve_class`.
    """
    cls = resolve_class("data set", spec, Dataset, DATASETS, folder)  # type: ignore[type-abstract]
    if not isinstance(getattr(cls, "info", None), DatasetInfo):
        raise UserError(f"data set {spec}: has no description; give the class info = DatasetInfo(title=..., kind=...)")
    with third_party_errors(f"data set {spec}", "its constructor", Path(getfile(cls))):
        return cls()


def proposed(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the data set that reads a file or folder, and the options that it proposes.

    Raises:
        UserError: there is no such file, or no data set takes it.
    """
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder")
    for name in DATASETS:
        if (options := find_dataset(name).propose(path)) is not None:
            return name, options
    forms = "a table (.csv, .tsv), arrays (.npz, .npy), a folder of images, or a folder of WFDB records"
    raise UserError(f"{path}: no data set takes it; give {forms}")


__all__ = ["DATASETS", "Dataset", "DatasetInfo", "Lattice", "NewSplit", "Splits", "Store", "find_dataset", "proposed"]
