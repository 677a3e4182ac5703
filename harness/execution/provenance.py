"""Provenance of results, collected once when a run starts: all its trials run the code imported then."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.core.files import write_atomically
from harness.core.provenance.environment import git_state
from harness.core.provenance.sources import Sources
from harness.core.run_options import PROJECT
from harness.core.trial import Trial

Provenance = Callable[[Trial], Mapping[str, Any]]
"""Function from a trial to the provenance for its record."""


class RunProvenance:
    """The checkout's commit, and the host on request, which all trials share; the digests of each trial's source."""

    def __init__(self, host: bool = False) -> None:
        self._sources = Sources()
        state, self.diff = git_state(PROJECT)
        self.common: dict[str, Any] = {"git": state} | ({"host": platform.node()} if host else {})

    def digests(self, trial: Trial) -> Mapping[str, str]:
        """Return the digests of the source that can change this trial's result."""
        return self._sources.of(trial)

    def of(self, trial: Trial) -> dict[str, Any]:
        """Return the provenance for the trial's record."""
        return self.common | {"sources": self.digests(trial)}

    def save(self, out: Path) -> None:
        """Save the diff of the checkout against its commit, under the digest by which records refer to it."""
        if self.diff and self.common["git"] is not None:
            path = out / "source" / f"{self.common['git']['diff']}.diff"
            if not path.exists():
                write_atomically(path, self.diff.encode("utf-8", "surrogateescape"))
