from typing import Literal

from harness.core.settings import Count, LayerRef
from harness.core.trial import Trial


class EntriesTrial(Trial):
    kind: Literal["entries"] = "entries"
    label: str
    shape: tuple[Count, ...]
    layer: LayerRef

    @property
    def slug(self):
        return f"{self.label}-{self.layer.row}"

    @property
    def column(self):
        return self.label

    @property
    def layers_under_test(self):
        return (self.layer,)

    @property
    def fields(self):
        return {"dataset": self.label, "layer": self.layer.row}
