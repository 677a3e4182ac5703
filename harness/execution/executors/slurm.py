"""Run trials as jobs of a SLURM cluster, which continue without the command that submitted them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.core.run_options import RunOptions
from harness.core.trial import Trial
from harness.execution.executor import Executor, Following
from harness.execution.slurm.section import SlurmSection
from harness.execution.slurm.submissions import lines, submitted_trials
from harness.planning.plan import GivenDevice


class Slurm(Executor):
    """Arrays of jobs; --jobs limits those that run at once."""

    Section = SlurmSection
    section: SlurmSection

    @property
    def here(self) -> bool:
        """Trials run on the nodes."""
        return False

    @property
    def cores(self) -> int:
        """The cores of a job."""
        return self.section.cpus or 1

    def device(self, option: GivenDevice) -> GivenDevice:
        """Return CUDA for "auto" if jobs request GPUs, and the CPU if not."""
        if option != "auto":
            return option
        return "cuda" if "gpu" in (self.section.gres or "") else "cpu"

    def at_once(self, trials: Sequence[Trial]) -> int:
        """Return the limit of jobs at once."""
        return max(1, min(len(trials), self.jobs or self.section.throttle or len(trials)))

    def run(
        self, trials: Sequence[Trial], attached: Sequence[Trial], run_options: RunOptions, following: Following
    ) -> None:
        """Submit the trials; wait for them and the attached ones. On KeyboardInterrupt their jobs continue."""
        from harness.execution.slurm.submit import follow, submit

        folder = run_options.out
        for line in submit(trials, run_options, self.section, self.jobs):
            following.tell(line)
        try:
            with following.reporter(len(trials) + len(attached)) as reporter:
                follow(folder, [*trials, *attached], reporter, following.stop_at)
        except KeyboardInterrupt:
            print(
                f"the jobs continue: the same command waits for them again, `python -m harness status {folder}` shows "
                f"them, and `python -m harness cancel {folder}` ends them",
                file=sys.stderr,
            )
            raise

    @classmethod
    def active(cls, folder: Path) -> set[str]:
        """Return the trials whose jobs the cluster may still run."""
        return {submitted.trial.id for submitted in submitted_trials(folder).values() if submitted.active}

    @classmethod
    def status(cls, folder: Path) -> list[str]:
        """Return the counts, and a line for each trial that runs, or has ended without a record."""
        return lines(submitted_trials(folder))

    @classmethod
    def cancel(cls, folder: Path) -> list[str]:
        """Cancel all jobs of the folder, and wait for their end."""
        from harness.execution.slurm.submit import cancel_all

        return cancel_all(folder)
