"""Run trials on this machine, as many at once as its cores and GPUs allow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from harness.core.run_options import RunOptions
from harness.core.trial import Trial, trial_class
from harness.execution.executor import Executor, Following
from harness.execution.folder import running_lines
from harness.execution.local.slots import at_once, make_slots


class Local(Executor):
    """Processes of this machine, under a supervisor in this process; its end is theirs."""

    def prepare(self, kinds: Collection[str], datasets: Collection[str]) -> None:
        """Let the trials' server import torch while this process does so for planning: both take equally long."""
        from harness.execution.local.process import start_trial_server

        start_trial_server(kinds, datasets, kernels=any(trial_class(kind).computes for kind in kinds))

    def at_once(self, trials: Sequence[Trial]) -> int:
        """Return how many have room."""
        return at_once(trials, make_slots(trials, self.jobs))

    def run(self, trials: Sequence[Trial], run_options: RunOptions, following: Following) -> None:
        """Run the trials side by side; those that run alone come last."""
        from harness.execution.local.supervisor import run_trials

        slots = make_slots(trials, self.jobs)
        with following.reporter(len(trials)) as reporter:
            run_trials(trials, run_options, slots, reporter, provenance=following.provenance)

    @classmethod
    def status(cls, folder: Path) -> list[str]:
        """Return a line on the run that uses the folder now, and one on each of its trials."""
        return running_lines(folder)
