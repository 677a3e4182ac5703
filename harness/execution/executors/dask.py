"""Run trials on the workers of a Dask cluster, which share no disk with this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from harness.core.errors import UserError
from harness.core.run_options import RunOptions
from harness.core.settings import Settings
from harness.core.trial import Trial
from harness.execution.executor import Executor, Following
from harness.execution.local.slots import Slots, at_once
from harness.planning.plan import GivenDevice

if TYPE_CHECKING:
    from distributed import Client


def _address(value: object) -> str:
    if not isinstance(value, str) or re.fullmatch(r"(tcp|tls|ws|wss)://\S+", value) is None:
        raise ValueError(f"{value!r:.80} is not the address of a scheduler; write it as Dask does, tcp://HOST:PORT")
    return value


class DaskSection(Settings):
    """The scheduler.

    Attributes:
        address: of a scheduler of Dask that runs.
    """

    address: Annotated[str | None, BeforeValidator(_address)] = None


class Dask(Executor):
    """Tasks of a scheduler; --jobs limits those that run at once. They end with this command."""

    Section = DaskSection
    section: DaskSection
    here = False
    cores = 1

    def __init__(self, jobs: int | None = None, section: Mapping[str, Any] | None = None, texts: Sequence[str] = ()):
        super().__init__(jobs, section, texts)
        if self.section.address is None:
            raise UserError(
                "--executor dask needs the address of a scheduler that runs: --cluster address=tcp://HOST:PORT"
            )

    def device(self, option: GivenDevice) -> GivenDevice:
        """Return the CPU for "auto"."""
        return "cpu" if option == "auto" else option

    def at_once(self, trials: Sequence[Trial]) -> int:
        """Return how many have room on the workers that there are now."""
        if not trials:
            return 1
        with self._client() as client:
            from harness.execution.dask.dispatch import workers

            room = sum(at_once(trials, Slots(cores=threads)) for threads in workers(client).values())
        return max(1, room if self.jobs is None else min(room, self.jobs))

    def run(self, trials: Sequence[Trial], run_options: RunOptions, following: Following) -> None:
        """Run the trials on the workers."""
        with self._client() as client, following.reporter(len(trials)) as reporter:
            from harness.execution.dask.dispatch import Dispatch

            Dispatch(client, run_options, following, reporter, self.jobs).run(trials)

    def _client(self) -> AbstractContextManager[Client]:
        """Connect to the scheduler; raise a UserError if that fails."""
        try:
            from harness.execution.dask.connection import connected
        except ImportError as error:
            raise UserError("--executor dask needs distributed: pip install 'invertbench[dask]'") from error
        return connected(str(self.section.address))
