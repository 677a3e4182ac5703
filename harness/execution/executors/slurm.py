"""Run trials as jobs of a SLURM cluster, which continue without the command that submitted them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.core.run_options import RunOptions
from harness.core.trial import Trial
from harness.execution.executor import Executor, Following
from harness.execution.slurm.submissions import Submissions, lines
from harness.planning.cluster import Cluster, cluster_of
from harness.planning.plan import GivenDevice


class Slurm(Executor):
    """Arrays of jobs; --jobs limits those that run at once."""

    def __init__(self, jobs: int | None, resources: Cluster, texts: Sequence[str]) -> None:
        super().__init__(jobs, resources, ())
        asked = cluster_of(resources, texts)
        self.cluster = asked if jobs is None else asked.model_copy(update={"throttle": jobs})

    @property
    def elsewhere(self) -> int | None:
        """The cores of a job."""
        return self.cluster.cpus or 1

    def device(self, option: GivenDevice) -> GivenDevice:
        """Return CUDA for "auto" if jobs request GPUs."""
        return self.cluster.device if option == "auto" else option

    def at_once(self, trials: Sequence[Trial]) -> int:
        """Return the limit of jobs at once."""
        return max(1, min(len(trials), self.cluster.throttle or len(trials)))

    def run(
        self, trials: Sequence[Trial], attached: Sequence[Trial], run_options: RunOptions, following: Following
    ) -> None:
        """Submit the trials; wait for them and the attached ones. On KeyboardInterrupt their jobs continue."""
        from harness.execution.slurm.slurm import follow, submit

        folder = run_options.out
        for line in submit(trials, run_options, self.cluster):
            following.tell(line)
        try:
            with following.reporter(len(trials) + len(attached)) as reporter:
                follow(folder, [*trials, *attached], reporter, following.stop_at, self.cluster.heartbeat)
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
        return {submitted.trial.id for submitted in Submissions(folder).look().values() if submitted.active}

    @classmethod
    def attachable(cls, folder: Path) -> set[str]:
        """Return them without those of cancelled jobs, which may take a while to end."""
        submitted = Submissions(folder).look().values()
        return {trial.trial.id for trial in submitted if trial.active and trial.state != "cancelled"}

    @classmethod
    def status(cls, folder: Path) -> list[str]:
        """Return the counts, and a line for each trial that runs or is lost."""
        return lines(Submissions(folder).look())

    @classmethod
    def cancel(cls, folder: Path) -> list[str]:
        """Cancel all jobs of the folder."""
        from harness.execution.slurm.slurm import cancel_all

        return cancel_all(folder)
