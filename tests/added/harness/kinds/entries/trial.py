from typing import Literal

from harness.core.settings import Count, LayerRef
from harness.core.trial import Trial


class EntriesTrial(Trial):
    kind: Literal["entries"] = "entries"
    label: str
    shape: tuple[Count, ...]
    layer: LayerRef
