"""Find the data of trials and check that they are available, before any of them runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from harness.core.errors import DataError, DataMissing, UserError
from harness.core.settings import NO_LOGIT, DataRef


def data_root(option: Path | None) -> Path | None:
    """Return `--data`, else $INVERTBENCH_DATA, else None; raise DataMissing if a named root does not exist."""
    variable = os.environ.get("INVERTBENCH_DATA")
    name, root = ("--data", option) if option or not variable else ("$INVERTBENCH_DATA", Path(variable))
    if root is not None and not root.is_dir():
        raise DataMissing(f"{name} {root}: no such folder; give the folder that holds the data sets")
    return root.resolve() if root else None


def check_data(
    needed: Iterable[DataRef],
    root: Path | None,
    offline: bool,
    tell: Callable[[str], object] = lambda line: None,
    optional: Collection[DataRef] = (),
) -> dict[DataRef, str | None]:
    """Find, check and prepare data sets; return the checksum of each, by `DataRef.arrays`.

    Args:
        offline: forbid downloads.
        tell: takes a line for each remark on data that can be used (see `harness.pipeline.data_remarks`), and for each
            data set that has no checksum.
        optional: data sets that have no checksum where they are missing, unless all data sets are missing.

    Raises:
        DataMissing: data are missing or wrong; the message lists all faults.
        UserError: likewise, if the suite is at fault for all of them.
    """
    checksums, faults = examine_data(needed, root, offline, tell)
    missing = [data for data, fault in faults.items() if data in optional and isinstance(fault, DataMissing)]
    lines = {f"left out: {data.label}, as its files are missing: {faults.pop(data)}" for data in missing if checksums}
    for line in sorted(lines):
        tell(line)
    raise_faults(faults.values())
    return checksums


def raise_faults(faults: Iterable[UserError]) -> None:
    """Raise one error with all faults, if there are any: DataMissing, or a UserError if the suite alone is at fault."""
    if lines := {str(fault): isinstance(fault, (DataMissing, DataError)) for fault in faults}:
        raise (DataMissing if any(lines.values()) else UserError)("\n".join(lines))


def examine_data(
    needed: Iterable[DataRef], root: Path | None, offline: bool, tell: Callable[[str], object]
) -> tuple[dict[DataRef, str | None], dict[DataRef, UserError]]:
    """Return the checksums of the data that can be used, and the faults of all others; see `check_data`."""
    from harness.datasets import DATASETS, Store, find_dataset
    from harness.pipeline.data_remarks import remark_lines

    store = Store.at(root, offline)
    checksums: dict[DataRef, str | None] = {}
    faults: dict[DataRef, UserError] = {}
    noted: set[DataRef] = set()  # data sets of which a split was remarked on: notes on others would say much the same
    first: dict[DataRef, DataRef] = {}  # data without their label -> those of the first column that reads them
    for data in dict.fromkeys(needed):
        earlier = first.setdefault(data.model_copy(update={"label": ""}), data)
        if earlier is not data:
            faults |= {data: faults[earlier]} if earlier in faults else {}
            continue
        dataset, options, new = find_dataset(data.name), dict(data.options), data.new_split
        try:
            splits = dataset.check(store, options, new)
            checksums[data.arrays] = None if splits is None else splits.checksum
            if data.preprocessing == "logit" and (splits or dataset.loaded(store, options, new)).levels is None:
                raise UserError(f"{data.label}: {NO_LOGIT}")
            if dataset.on_disk or data.name not in DATASETS or splits:  # others are generated, or part of a package
                column = data.model_copy(update={"split": None, "permute": None})
                splits = splits or dataset.loaded(store, options, new)
                for line in remark_lines(store, data, splits, notes=column not in noted):
                    tell(line)
                noted.add(column)
        except UserError as error:
            faults[data] = error
    return checksums, faults
