"""User-supplied WFDB records, named in the suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, cast

from pydantic import Field

from harness.core.errors import UserError
from harness.datasets._signals.recording_options import RecordingOptions
from harness.datasets._signals.recordings import Source, in_folder, recording_splits
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

RecordName = Annotated[str, Field(min_length=1, strict=True)]


class OwnRecordingsOptions(RecordingOptions):
    """The records, and the options of the windows."""

    records: Annotated[tuple[RecordName, ...], Field(min_length=1)] = Field(
        description="a list of WFDB records by the paths of their headers below the data root, without .hea, in time"
    )


class OwnRecordings(Dataset, name="wfdb"):
    """Windows of WFDB records in the data root, of one segment or many, with the signals that the options name."""

    info = DatasetInfo(
        title="Your own WFDB records",
        kind="sequence",
        what=(
            "windows of the signals that you name (PLETH and ABP unless you say otherwise), in units of the converter, "
            "without the samples where any is invalid; several records follow one another in time. Split in time into "
            "train, 30 s left out, validation, 30 s left out, test. Cleaning (flat lines, flat peaks, band-pass) is an "
            "option"
        ),
        size="as large as they are",
        licence="that of your records",
        source="you",
        how_to_get="records: [FOLDER/NAME] in the options, with NAME.hea and its .dat files in FOLDER of the data root",
    )
    imports = ("wfdb",)
    on_disk = True
    options_model = OwnRecordingsOptions

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (channels, length)."""
        return cast(OwnRecordingsOptions, self.parse(options)).shape

    def channels(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Return the names of the signals."""
        return cast(OwnRecordingsOptions, self.parse(options)).channels

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, int16 or int32 converter units (float32 after a band-pass), mapped from the cache."""
        chosen = cast(OwnRecordingsOptions, self.parse(options))
        title = f"WFDB record{'s' * (len(chosen.records) > 1)} {', '.join(chosen.records)}"
        sources = [self._source(store, record) for record in chosen.records]
        headers = [locate(f"{record}.hea").resolve() for record, locate in sources]
        for header in headers:
            if headers.count(header) > 1:
                raise UserError(
                    f"wfdb: records names {header} twice; its test part would be trained on. Name each record once"
                )
        return recording_splits(store, self.name, sources, chosen, title)

    def _source(self, store: Store, record: str) -> Source:
        path = str(PurePath(f"{record}.hea"))  # without a leading "./", which would mean the working directory
        header = store.find(self.name, path, "name a record by the path of its header, without .hea")
        return PurePath(record).name, in_folder(self.name, header.parent)
