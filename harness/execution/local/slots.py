"""Room for trials: cores for their threads, one GPU for each that needs one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.core.machine import usable_cores, usable_gpus
from harness.core.settings import Trial


@dataclass(frozen=True)
class Lease:
    """What one running trial has.

    Attributes:
        threads: cores, as many as it has threads.
        gpu: what CUDA_VISIBLE_DEVICES is to be for it; None for a trial on the CPU.
    """

    threads: int
    gpu: str | None


@dataclass
class Slots:
    """What may run at once.

    The threads of a trial are a setting of it, as they change its last digits; so trials share the cores by
    their number, never by giving one fewer threads. A trial of more threads than there are cores runs alone.

    Attributes:
        jobs: trials at once; None: as many as cores and GPUs hold.
        cores: threads at once.
        gpus: of which each trial on "cuda" is given one for itself.
    """

    jobs: int | None = None
    cores: int = field(default_factory=usable_cores)
    gpus: Sequence[str] = ()
    _leases: list[Lease] = field(default_factory=list)

    def lease(self, trial: Trial) -> Lease | None:
        """Room for this trial, or None while others have it."""
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
        """The trial is over."""
        self._leases.remove(lease)


def make_slots(trials: Sequence[Trial], jobs: int | None) -> Slots:
    """The room on this machine for these trials."""
    gpus = usable_gpus() if any(trial.device == "cuda" for trial in trials) else ()
    return Slots(jobs, usable_cores(), gpus)


def at_once(trials: Sequence[Trial], slots: Slots) -> int:
    """How many of these trials run at once, when there are enough of them."""
    if not trials:
        return 1
    room = max(1, slots.cores // max(trial.threads for trial in trials))
    if all(trial.device == "cuda" for trial in trials):
        room = min(room, max(1, len(slots.gpus)))
    return room if slots.jobs is None else min(room, slots.jobs)
