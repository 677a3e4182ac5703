"""Resources for trials: cores for their threads, one GPU for each that needs one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.core.provenance.environment import usable_cores, usable_gpus
from harness.core.trial import Trial


class Lease(NamedTuple):
    """The resources of one running trial: cores, and a value for CUDA_VISIBLE_DEVICES; None: unchanged."""

    threads: int
    gpu: str | None


@dataclass
class Slots:
    """Limits on trials that run at once.

    The threads of a trial are one of its settings, as they change its last digits; so trials share the cores by
    their number, and none gets fewer threads. A trial with more threads than there are cores runs alone.

    Each trial on "cuda" gets a GPU for itself.
    """

    jobs: int | None = None  # trials at once; None: as many as cores and GPUs allow
    cores: int = field(default_factory=usable_cores)  # threads at once
    gpus: Sequence[str] = ()
    _leases: list[Lease] = field(default_factory=list)

    def lease(self, trial: Trial) -> Lease | None:
        """Return resources for this trial, or None while other trials hold them."""
        if self.jobs is not None and len(self._leases) >= self.jobs:
            return None
        if self._leases and sum(lease.threads for lease in self._leases) + trial.threads > self.cores:
            return None
        gpu = None
        if trial.device == "cuda":
            free = [name for name in self.gpus if name not in {lease.gpu for lease in self._leases}]
            if not free and self._leases:
                return None
            gpu = free[0] if free else None
        lease = Lease(trial.threads, gpu)
        self._leases.append(lease)
        return lease

    def give_back(self, lease: Lease) -> None:
        """Release the resources of a trial that has ended."""
        self._leases.remove(lease)


def make_slots(trials: Sequence[Trial], jobs: int | None) -> Slots:
    """Return the limits of this machine for these trials."""
    gpus = usable_gpus() if any(trial.device == "cuda" for trial in trials) else ()
    return Slots(jobs, usable_cores(), gpus)


def at_once(trials: Sequence[Trial], slots: Slots) -> int:
    """Return how many of these trials run at once, if there are enough of them."""
    if not trials:
        return 1
    room = max(1, slots.cores // max(trial.threads for trial in trials))
    if all(trial.device == "cuda" for trial in trials):
        room = min(room, max(1, len(slots.gpus)))
    return room if slots.jobs is None else min(room, slots.jobs)
