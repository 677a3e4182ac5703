"""WFDB records: the three patients of the published comparison, from MIMIC-III, and the records of users."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from harness.core.errors import DataError, DataMissing
from harness.core.settings import NewSplit
from harness.datasets._signals.recordings import MOST_UNUSED, RecordingOptions, Source, in_folder, recording_splits
from harness.datasets._signals.wfdb_records import read_header
from harness.datasets._store.store import Store, fetch
from harness.datasets.base import Dataset, DatasetInfo, Splits

URL = "https://physionet.org/files/mimic3wdb/1.0/"


class MimicOptions(RecordingOptions):
    """The patient, and the options of the windows."""

    patient: Literal[3000063, 3000393, 3000397] = Field(
        3000063, description="the number of a record: patients 1, 2 and 3 of the published comparison"
    )


class Mimic(Dataset, name="mimic"):
    """One record of the MIMIC-III Waveform Database, from the data root or downloaded file by file.

    Args:
        url: the folder of the database's version, with a slash at its end; record R is in its folder RR/RRRRRRR/.
    """

    info = DatasetInfo(
        title="MIMIC-III waveforms, PPG and ABP of one patient",
        kind="sequence",
        what=(
            "windows of 1,024 samples (8.2 s at 125 Hz) of PPG and arterial blood pressure, in units of the "
            "converter, of record 3000063, 3000393 or 3000397, without the samples where either is invalid. Split "
            "in time into train, 30 s left out, validation, 30 s left out, test"
        ),
        size="about 10 million samples per record",
        licence="Open Data Commons Open Database License v1.0, as PhysioNet states it; open access",
        source="B. Moody et al. (2020), MIMIC-III Waveform Database 1.0, https://doi.org/10.13026/c2607m",
        how_to_get=(
            "fetched when first needed; or the record's .hea and .dat files, into mimic3wdb/1.0/30/3000063/ (or "
            "3000063/) of the data root"
        ),
    )
    imports = ("wfdb",)
    on_disk = True
    options_model = MimicOptions

    def __init__(self, url: str = URL) -> None:
        self._url = url

    def load(self, store: Store, options: Mapping[str, Any], new: NewSplit | None = None) -> Splits:
        """Return the splits, int16 converter units, mapped from the cache.

        A new split is one in time, of the recording closed to a ring and rotated.
        """
        chosen: MimicOptions = self.parse(options)
        title = f"MIMIC-III waveforms, record {chosen.patient}"
        return recording_splits(store, self.name, [self._source(store, str(chosen.patient))], chosen, title, new)

    def _source(self, store: Store, record: str) -> Source:
        """Return the record in the data root, else file by file in the cache, downloaded if necessary."""
        inside = f"mimic3wdb/1.0/{record[:2]}/{record}"
        if store.root is not None:
            for folder in (store.root / inside, store.root / record, store.root):
                if (folder / f"{record}.hea").is_file():
                    return record, in_folder(self.name, folder)

        def fetched(file: str) -> Path:
            way = f"or all files of the record into {inside}/ of a data root (--data ROOT)"
            return fetch(store, f"{self.name}/{record}/{file}", f"{self._url}{record[:2]}/{record}/{file}", by_hand=way)

        return record, fetched


VALUES = 2048  # of a window that `init` proposes, at most
RECORDS = 10  # from which on whole records are drawn for validation and test
PATTERN = {*"*?["}  # characters of a pattern
RecordName = Annotated[str, Field(min_length=1, strict=True)]


def _several(records: Any) -> Any:
    return (records,) if isinstance(records, str) and PATTERN & {*records} else records


class WfdbRecordsOptions(RecordingOptions):
    """The records, and the options of the windows."""

    records: Annotated[tuple[RecordName, ...], Field(min_length=1), BeforeValidator(_several)] = Field(
        description="a list of WFDB records by the paths of their headers below the data root, without .hea, in time; "
        "or patterns such as ludb/*"
    )


class WfdbRecords(Dataset, name="wfdb"):
    """Windows of WFDB records in the data root, of one segment or many, with the signals that the options name."""

    info = DatasetInfo(
        title="Your own WFDB records",
        kind="sequence",
        what=(
            "windows of the signals that you name, without the samples where any is invalid, in units of the "
            "converter or physical ones; several records follow one another in time. Split in time into train, 30 s "
            "left out, validation, 30 s left out, test, or by whole records"
        ),
        source="you",
        how_to_get="records: [FOLDER/NAME] in the options, with NAME.hea and its .dat files in FOLDER of the data root",
    )
    imports = ("wfdb",)
    on_disk = True
    options_model = WfdbRecordsOptions

    def propose(self, path: Path) -> dict[str, Any] | None:
        """Return the options of a folder of records, or of folders of them: the signals of nearly all, short windows.

        Names of records are relative to the folder above, which is then the data root.
        """
        found = path.is_dir() and (sorted(path.glob("*.hea")) or sorted(path.glob("*/*.hea")))
        if not found:
            return None
        headers = [header for header in (read_header(self.name, path) for path in found) if header.names]
        lengths = [header.content.sig_len for header in headers if header.content.sig_len]
        counts = Counter(name.lower() for header in headers for name in {*header.names} if name is not None)
        most = (1 - MOST_UNUSED) * len(headers)
        first = {name.lower(): name for header in headers for name in header.names if name is not None}
        channels = [name for key, name in first.items() if counts[key] >= most]
        if not channels or not lengths:
            raise DataError(
                f"{self.name}: {path}: no signal is in nearly all of its {len(found)} records; name `records`"
            )
        usual = sorted(lengths)[round(MOST_UNUSED * len(lengths))]  # a few shorter ones may be left out
        longest = min(usual // (1 if len(found) >= RECORDS else 2), VALUES // len(channels))
        deep = found[0].parent != path
        split = "folder" if deep else "record" if len(found) >= RECORDS else "time"
        return {
            "records": f"{path.name}/*/*" if deep else f"{path.name}/*",
            "channels": channels,
            "length": max(16, 2 ** (longest.bit_length() - 1)),
            **({} if split == "time" else {"split": split}),
        }

    def load(self, store: Store, options: Mapping[str, Any], new: NewSplit | None = None) -> Splits:
        """Return the splits, converter units, or physical or standardised values, mapped from the cache.

        A new split is of whole records or folders, or in time, of the recording closed to a ring and rotated.
        """
        chosen: WfdbRecordsOptions = self.parse(options)
        title = f"WFDB record{'s' * (len(chosen.records) > 1)} {', '.join(chosen.records)}"
        sources = [
            self._source(store, record)
            for named in chosen.records
            for record in (self._matching(store, named) if PATTERN & {*named} else [named])
        ]
        return recording_splits(store, self.name, sources, chosen, title, new)

    def _matching(self, store: Store, pattern: str) -> list[str]:
        """Return the records of a pattern, without the segments of others, numbers in their order."""
        found = [] if store.root is None else list(store.root.glob(f"{pattern}.hea"))
        if store.root is None or not found:
            raise DataMissing(f"{self.name}: {pattern}: no such records in the data root {store.root or '(none)'}")
        headers = [read_header(self.name, path) for path in found]
        segments = {header.path.parent / f"{name}.hea" for header in headers for name, _ in header.segments}
        names = [str(path.relative_to(store.root).with_suffix("")) for path in found if path not in segments]
        return sorted(names, key=lambda name: [text.zfill(20) for text in re.split(r"(\d+)", name)])

    def _source(self, store: Store, record: str) -> Source:
        path = str(PurePath(f"{record}.hea"))  # without a leading "./", which would mean the working directory
        header = store.find(self.name, path, "name a record by the path of its header, without .hea")
        return PurePath(record).name, in_folder(self.name, header.parent)
