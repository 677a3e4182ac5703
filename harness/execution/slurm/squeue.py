"""What SLURM says of jobs, by their name, and how they are cancelled.

`squeue` and `scancel` are all that is asked: a cluster without accounting has no `sacct`. The queue forgets a job
some minutes after its end, so that its answer only ever adds to what lies on the shared disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.core.errors import UserError

PATIENCE = 60.0  # seconds to wait for the scheduler's answer
# A state that is not one of these is an end.
ACTIVE = {
    *("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "STAGE_OUT", "SIGNALING", "STOPPED"),
    *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
}


@dataclass(frozen=True)
class Job:
    """One job of an array.

    Attributes:
        array: number of the whole array.
        state: as SLURM calls it, "PENDING".
        reason: why it is in this state; "None" where there is no reason.
    """

    array: str
    state: str
    reason: str

    @property
    def active(self) -> bool:
        """Whether it waits or runs."""
        return self.state in ACTIVE

    def text(self) -> str:
        """ "TIMEOUT (TimeLimit)"."""
        return self.state if self.reason in ("None", "") else f"{self.state} ({self.reason})"


Jobs = Mapping[int | None, Job]
"""Index in the array -> job; None stands for a job without an index, or for all those that were never started."""


def ask(names: Collection[str]) -> dict[str, dict[int | None, Job]] | None:
    """Name -> its jobs, as far as the queue knows them; None where it does not answer."""
    if not names:
        return {}
    form = "%j|%F|%K|%T|%r"
    command = ["squeue", "--noheader", "--array", "--states=all", f"--name={','.join(names)}", f"--format={form}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse(done.stdout)


def parse(text: str) -> dict[str, dict[int | None, Job]]:
    """The answer of `squeue` in the form of `ask`."""
    found: dict[str, dict[int | None, Job]] = {}
    for line in text.splitlines():
        fields = line.split("|", 4)
        if len(fields) == 5:
            name, array, index, state, reason = (field.strip() for field in fields)
            found.setdefault(name, {})[int(index) if index.isdecimal() else None] = Job(array, state, reason)
    return found


class Queue:
    """Answers of the scheduler, none asked for more often than it should be.

    Args:
        period: seconds for which an answer holds.
    """

    def __init__(self, period: float = 0.0) -> None:
        self.period = period
        self._answers: dict[frozenset[str], tuple[float, dict[str, dict[int | None, Job]] | None]] = {}

    def jobs(self, names: Collection[str]) -> dict[str, dict[int | None, Job]] | None:
        """As `ask`."""
        key = frozenset(names)
        known = self._answers.get(key)
        if known is None or time.monotonic() - known[0] >= self.period:
            known = time.monotonic(), ask(sorted(names))
            self._answers = {key: known}
        return known[1]


def cancel(names: Collection[str]) -> None:
    """End all jobs of these names, waiting and running; names without any are passed over."""
    needed("scancel")
    for name in names:
        command = ["scancel", f"--name={name}", f"--user={os.getuid()}"]
        try:
            subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
            raise UserError(f"scancel --name={name} failed ({''.join(said)}); try again") from error


def needed(program: str) -> None:
    """A UserError where SLURM is not at hand."""
    if shutil.which(program) is None:
        raise UserError(
            f"no {program} here: jobs are submitted and cancelled on a machine of a SLURM cluster; elsewhere, use "
            "--executor local"
        )
