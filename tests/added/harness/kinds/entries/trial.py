from typing import ClassVar, Literal

from harness.core.settings import Count, LayerRef
from harness.core.trial import IDENTITY, Trial


class EntriesTrial(Trial):
    columns: ClassVar[dict[str, str]] = IDENTITY | {
        "status": "string",
        "reason": "string",
        "check": "string",
        "entries": "Int64",
        "device": "string",
        "id": "string",
    }
    computes: ClassVar[bool] = False

    kind: Literal["entries"] = "entries"
    label: str
    shape: tuple[Count, ...]
    layer: LayerRef
