"""The interface of executors, which run trials on this machine or elsewhere.

An executor is one file in harness/execution/executors/ with a subclass of `Executor`; the name of the file is its name
on the command line. Commands ask the object, and none asks which executor it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from harness.core.discovery import class_in, names_in
from harness.core.errors import UserError
from harness.execution import executors

if TYPE_CHECKING:
    from harness.core.records import Record
    from harness.core.run_options import RunOptions
    from harness.core.trial import Trial
    from harness.execution.progress import Reporter
    from harness.execution.provenance import Provenance
    from harness.planning.cluster import Cluster
    from harness.planning.plan import GivenDevice


@dataclass(frozen=True)
class Following:
    """Follow trials while they run.

    Attributes:
        reporter: returns the reporter of the progress of so many trials, a context manager.
        stop_at: returns whether a record ends the run (--fail-fast); None: none does.
        provenance: returns that for the record of a trial which runs on this machine.
        tell: takes a line for standard output.
    """

    reporter: Callable[[int], Reporter]
    stop_at: Callable[[Record], bool] | None
    provenance: Provenance
    tell: Callable[[str], None] = print


class Executor(ABC):
    """Run trials, each in a separate process that leaves one record in the folder of the run.

    Args:
        jobs: trials at once (--jobs); None: as many as have room.
        resources: the section `cluster:` of the suite.
        texts: `--cluster KEY=VALUE` options, over the section.
    """

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__module__.rpartition(".")[2]

    def __init__(self, jobs: int | None, resources: Cluster, texts: Sequence[str]) -> None:
        self.jobs = jobs
        if texts:
            raise UserError(
                f"--cluster {texts[0]}: the option has no effect on --executor {self.name}; leave it out, or give the "
                "executor of a cluster"
            )

    @property
    def elsewhere(self) -> int | None:
        """Cores of each trial, if trials run on other machines, whose devices are unknown here; None: they run here."""
        return None

    def device(self, option: GivenDevice) -> GivenDevice:
        """Return the device that `--device` means where the trials run."""
        return option

    def prepare(self, kinds: Collection[str], datasets: Collection[str]) -> None:
        """Begin slow preparations for trials of these kinds and data sets, in parallel to the planning."""
        return

    @abstractmethod
    def at_once(self, trials: Sequence[Trial]) -> int:
        """Return how many of these trials run at once."""

    @abstractmethod
    def run(
        self, trials: Sequence[Trial], attached: Sequence[Trial], run_options: RunOptions, following: Following
    ) -> None:
        """Run trials until each has left its record, and follow those that an earlier command submitted.

        On KeyboardInterrupt, or any other exception, the trials end without a record, or continue if the executor can
        attach to them again.
        """

    @classmethod
    def active(cls, folder: Path) -> set[str]:
        """Return the ids of the trials of a folder that may still run, submitted by an earlier command."""
        return set()

    @classmethod
    def attachable(cls, folder: Path) -> set[str]:
        """Return those of `active` whose records a run waits for."""
        return cls.active(folder)

    @classmethod
    def status(cls, folder: Path) -> list[str]:
        """Return the lines of `status` on trials that run now, or were submitted."""
        return []

    @classmethod
    def cancel(cls, folder: Path) -> list[str]:
        """Cancel all submitted trials of a folder that may still run; return a line on each submission."""
        return []


def executor_names() -> list[str]:
    """Return the names of all executors, for `--executor`."""
    return names_in(executors)


def executor_class(name: str) -> type[Executor]:
    """Return the executor of a name in `executor_names`."""
    return class_in(executors, name, Executor)  # type: ignore[type-abstract]


def every_executor() -> list[type[Executor]]:
    """Return all executors."""
    return list(map(executor_class, executor_names()))


def attached_trials(folder: Path, executor: Executor) -> set[str]:
    """Return the ids of the trials of a folder that the executor waits for, submitted by an earlier command.

    Raises:
        UserError: another executor may still run some.
    """
    for cls in every_executor():
        if cls is not type(executor) and cls.active(folder):
            lines = cls.status(folder)
            raise UserError(
                f"{folder}: trials of an earlier command use this folder ({lines[0] if lines else cls.name}); wait "
                f"with --executor {cls.name}, or end them with `python -m harness cancel {folder}`"
            )
    return executor.attachable(folder)
