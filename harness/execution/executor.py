"""The interface of executors, which run trials on this machine or elsewhere.

An executor is one file in harness/execution/executors/ with a subclass of `Executor`; the name of the file is its name
on the command line. Commands ask the object, and none asks which executor it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ValidationError, create_model

from harness.core.discovery import class_in, names_in
from harness.core.errors import SuiteError, UserError
from harness.core.explain import explain
from harness.core.provenance.environment import usable_cores
from harness.core.settings import Settings
from harness.execution import executors
from harness.planning.cells import assigned, merged, option_behind, raise_faults
from harness.planning.strict_yaml import parse_pairs

if TYPE_CHECKING:
    from harness.core.run_options import RunOptions
    from harness.core.trial import Trial
    from harness.execution.outcome import Provenance
    from harness.execution.progress import Reporter
    from harness.planning.plan import GivenDevice
    from harness.planning.suite import SuiteFile


@dataclass(frozen=True)
class Following:
    """Follow trials while they run.

    Attributes:
        reporter: returns the reporter of the progress of so many trials, a context manager.
        provenance: returns that for the record of a trial which runs on this machine.
        tell: takes a line for standard output.
    """

    reporter: Callable[[int], Reporter]
    provenance: Provenance
    tell: Callable[[str], None] = print


class Executor(ABC):
    """Run trials, each in a separate process that leaves one record in the folder of the run.

    Args:
        jobs: trials at once (--jobs); None: as many as have room.
        section: `cluster:` of the suite, of which other executors may have other keys.
        texts: `--cluster KEY=VALUE` options, over the section.

    Attributes:
        Section: the model of its keys in `cluster:` and of `--cluster`.
        section: the values of its keys, a `Section`.
        here: whether trials run on this machine, and not on others, whose devices are unknown here.
    """

    name: ClassVar[str]
    here: ClassVar[bool] = True
    Section: ClassVar[type[Settings]] = Settings
    section: Any

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__module__.rpartition(".")[2]

    def __init__(self, jobs: int | None = None, section: Mapping[str, Any] | None = None, texts: Sequence[str] = ()):
        self.jobs = jobs
        pairs = parse_pairs("--cluster", texts, "KEY=VALUE")
        changes = [(option, assigned(key.split(".", 1), value)) for option, key, value in pairs]
        base = {key: value for key, value in (section or {}).items() if key in self.Section.model_fields}
        for _, content in changes:
            base = merged(base, content, 2)
        try:
            self.section = self.Section.model_validate(base)
        except ValidationError as error:
            faults = [f"{option_behind(changes, place)}: {text}" for place, text, *_ in explain(error, self.Section)]
            raise SuiteError("\n".join(faults)) from error

    @property
    def cores(self) -> int:
        """The cores that each trial may use (`threads: auto`)."""
        return max(1, usable_cores() // (self.jobs or 1))

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
    def run(self, trials: Sequence[Trial], run_options: RunOptions, following: Following) -> None:
        """Run trials until each has left its record; follow those of them that an earlier command submitted.

        On KeyboardInterrupt, or any other exception, the trials end without a record, or continue if the executor can
        attach to them again. FailedFast of the reporter ends them in any case.
        """

    @classmethod
    def active(cls, folder: Path) -> set[str]:
        """Return the ids of the trials of a folder that may still run, submitted by an earlier command.

        A run with this executor waits for their records.
        """
        return set()

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


def section_model() -> type[Settings]:
    """Return the model of `cluster:` in a suite, which has the keys of all executors."""
    models = tuple(cls.Section for cls in every_executor() if cls.Section is not Settings)
    return create_model("Cluster", __base__=models, __doc__="Resources of a cluster; an executor takes its keys.")


def check_section(suite: SuiteFile) -> None:
    """Raise a SuiteError for the faults in the section `cluster:` of a suite, each with its place."""
    model = create_model("WithCluster", cluster=(section_model(), ...))
    try:
        model.model_validate({"cluster": suite.cluster})
    except ValidationError as error:
        raise_faults(suite.origin.document, explain(error, model))


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
    return executor.active(folder)
