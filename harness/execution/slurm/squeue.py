"""Query SLURM for jobs by their name, and cancel them.

Only `squeue` and `scancel` are used: a cluster without accounting has no `sacct`. The queue forgets a job some
minutes after its end, so its answer only supplements the files on the shared disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Mapping
from typing import NamedTuple

from harness.core.errors import UserError

PATIENCE = 60.0  # seconds timeout for the scheduler's answer
# Every other state is final.
ACTIVE = {
    *("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "STAGE_OUT", "SIGNALING", "STOPPED"),
    *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
}


class Job(NamedTuple):
    """One job of an array: SLURM's name of its state, such as "PENDING", and the reason, "None" without one."""

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


def ask(names: Collection[str]) -> Mapping[str, Jobs] | None:
    """Return name -> its jobs, as far as the queue knows them; None if it does not answer."""
    if not names:
        return {}
    command = ["squeue", "--noheader", "--array", "--states=all", f"--name={','.join(names)}", "--format=%j|%K|%T|%r"]
    try:
        return parse(_answer(command))
    except (OSError, subprocess.SubprocessError):
        return None


def parse(text: str) -> dict[str, dict[int | None, Job]]:
    """Return the answer of `squeue` in the form of `ask`."""
    jobs: dict[str, dict[int | None, Job]] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|", 3)]
        if len(fields) == 4:
            name, index, state, reason = fields
            jobs.setdefault(name, {})[int(index) if index.isdecimal() else None] = Job(state, reason)
    return jobs


def cancel(name: str) -> None:
    """End all jobs of this name, waiting and running, if there are any."""
    needed("scancel")
    try:
        _answer(["scancel", f"--name={name}", f"--user={os.getuid()}"])
    except (OSError, subprocess.SubprocessError) as error:
        message = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise UserError(f"scancel --name={name} failed ({''.join(message)}); try again") from error


def _answer(command: list[str]) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=True
    ).stdout


def needed(program: str) -> None:
    """Raise a UserError if a program of SLURM is missing."""
    if shutil.which(program) is None:
        raise UserError(
            f"{program} is missing here: jobs are submitted and cancelled on a machine of a SLURM cluster; elsewhere, "
            "use --executor local"
        )
