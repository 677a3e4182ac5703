"""Provenance of results, collected once when a run starts: all its trials run the code imported then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.environment import run_provenance
from harness.core.records import write_atomically
from harness.core.sources import Sources
from harness.core.trial import Trial


class RunProvenance:
    """Provenance that the records of one run share, and the digests of each trial's source.

    Args:
        host: whether records name the machine.
    """

    def __init__(self, host: bool = False) -> None:
        self._sources = Sources()
        self._common, self._diff = run_provenance(host)

    def digests(self, trial: Trial) -> Mapping[str, str]:
        """Return the digests of the source that can change this trial's result."""
        return self._sources.of(trial)

    def of(self, trial: Trial) -> dict[str, Any]:
        """Return the provenance for the trial's record."""
        return self._common | {"sources": self.digests(trial)}

    def save(self, out: Path) -> None:
        """Save the diff of the checkout against its commit, under the digest by which records refer to it."""
        if self._diff and self._common["git"] is not None:
            path = out / "source" / f"{self._common['git']['diff']}.diff"
            if not path.exists():
                write_atomically(path, self._diff.encode("utf-8", "surrogateescape"))
