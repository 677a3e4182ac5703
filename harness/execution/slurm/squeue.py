"""Query SLURM for jobs by their name, and cancel them.

Only `squeue` and `scancel` are used: a cluster without accounting has no `sacct`. The queue forgets a job some
minutes after its end, so its answer only supplements the files on the shared disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.core.errors import UserError

PATIENCE = 60.0  # seconds timeout for the scheduler's answer
# Every other state is final.
ACTIVE = {
    *("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "STAGE_OUT", "SIGNALING", "STOPPED"),
    *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
}


@dataclass(frozen=True)
class Job:
    """One job of an array.

    Attributes:
        array: number of the whole array.
        state: SLURM's name of the state, such as "PENDING".
        reason: SLURM's reason for the state; "None" without one.
    """

    array: str
    state: str
    reason: str

    @property
    def active(self) -> bool:
        """True if the job is waiting or running."""
        return self.state in ACTIVE

    def text(self) -> str:
        """The state as text: "TIMEOUT (TimeLimit)"."""
        return self.state if self.reason in ("None", "") else f"{self.state} ({self.reason})"


Jobs = Mapping[int | None, Job]
"""Index in the array -> job; None stands for a job without an index, or for all jobs that never started."""


def ask(names: Collection[str]) -> dict[str, dict[int | None, Job]] | None:
    """Return name -> its jobs, as far as the queue knows them; None if it does not answer."""
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
    """Return the answer of `squeue` in the form of `ask`."""
    found: dict[str, dict[int | None, Job]] = {}
    for line in text.splitlines():
        fields = line.split("|", 4)
        if len(fields) == 5:
            name, array, index, state, reason = (field.strip() for field in fields)
            found.setdefault(name, {})[int(index) if index.isdecimal() else None] = Job(array, state, reason)
    return found


class Queue:
    """Cached answers of the scheduler, so that it is not queried too often.

    Args:
        period: seconds for which an answer is valid.
    """

    def __init__(self, period: float = 0.0) -> None:
        self.period = period
        self._answers: dict[frozenset[str], tuple[float, dict[str, dict[int | None, Job]] | None]] = {}

    def jobs(self, names: Collection[str]) -> dict[str, dict[int | None, Job]] | None:
        """Return the same as `ask`, at most `period` old."""
        key = frozenset(names)
        known = self._answers.get(key)
        if known is None or time.monotonic() - known[0] >= self.period:
            known = time.monotonic(), ask(sorted(names))
            self._answers = {key: known}
        return known[1]


def cancel(names: Collection[str]) -> None:
    """End all jobs of these names, waiting and running; names without jobs are ignored."""
    needed("scancel")
    for name in names:
        command = ["scancel", f"--name={name}", f"--user={os.getuid()}"]
        try:
            subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
            raise UserError(f"scancel --name={name} failed ({''.join(said)}); try again") from error


def needed(program: str) -> None:
    """Raise a UserError if a program of SLURM is missing."""
    if shutil.which(program) is None:
        raise UserError(
            f"{program} is missing here: jobs are submitted and cancelled on a machine of a SLURM cluster; elsewhere, "
            "use --executor local"
        )
