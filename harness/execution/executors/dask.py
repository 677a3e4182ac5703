"""Run trials on the workers of a Dask cluster, which share no disk with this machine."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator

from harness.core.errors import UserError
from harness.core.provenance.machine import usable_cores
from harness.core.run_options import PROJECT, RunOptions
from harness.core.settings import Settings
from harness.core.trial import Trial
from harness.execution.executor import Executor, Following
from harness.execution.local.running import RunningReporter
from harness.execution.local.slots import Slots, at_once, make_slots
from harness.planning.plan import GivenDevice

if TYPE_CHECKING:
    from distributed import Client

INSTALL = "pip install 'invertbench[dask]'"


def _address(value: object) -> str:
    if not isinstance(value, str) or re.fullmatch(r"(tcp|tls|ws|wss)://\S+", value) is None:
        shown = "" if value is None else repr(value)[:80]  # the option without a value, too
        raise ValueError(
            f"{shown or 'nothing'} is not the address of a scheduler; write it as Dask does, tcp://HOST:PORT"
        )
    return value


class DaskSection(Settings):
    """The scheduler.

    Attributes:
        address: of a scheduler of Dask that runs; without one, workers in this process.
        data: folder of the data sets on workers; null: their $INVERTBENCH_DATA, or else that of the command.
    """

    address: Annotated[str | None, BeforeValidator(_address)] = None
    data: Path | None = None


class Dask(Executor):
    """Tasks of a scheduler; --jobs limits those that run at once. They end with this command."""

    Section = DaskSection
    section: DaskSection

    @property
    def here(self) -> bool:
        """Return whether the workers are in this process."""
        return self.section.address is None

    @property
    def cores(self) -> int:
        """One core, on workers elsewhere."""
        return super().cores if self.here else 1

    def device(self, option: GivenDevice) -> GivenDevice:
        """Return the CPU for "auto" on workers elsewhere."""
        return "cpu" if option == "auto" and not self.here else option

    def at_once(self, trials: Sequence[Trial]) -> int:
        """Return how many have room on the workers that there are now."""
        if self.here or not trials:
            return at_once(trials, make_slots(trials, self.jobs))
        with self._client() as client:
            from harness.execution.dask.dispatch import workers

            room = sum(at_once(trials, Slots(cores=threads)) for threads in workers(client).values())
        return max(1, room if self.jobs is None else min(room, self.jobs))

    def run(
        self, trials: Sequence[Trial], attached: Sequence[Trial], run_options: RunOptions, following: Following
    ) -> None:
        """Run the trials on the workers."""
        if not trials:
            return
        with (
            self._client() as client,
            following.reporter(len(trials)) as shown,
            RunningReporter(shown, run_options.out) as reporter,
        ):
            from harness.execution.dask.dispatch import Dispatch

            data = run_options.root if self.here else self.section.data
            path = str(PROJECT) if self.here else None
            Dispatch(client, run_options, following, reporter, self.jobs, data, path).run(trials)

    @contextlib.contextmanager
    def _client(self) -> Iterator[Client]:
        """Connect to the scheduler, or to one of this process; raise a UserError if that fails."""
        try:
            from distributed import Client, LocalCluster

            from harness.execution.dask.connection import connected
        except ImportError as error:
            raise UserError(f"--executor dask needs distributed: {INSTALL}") from error
        for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # this program has messages of its own
        if self.section.address is not None:
            with connected(self.section.address) as client:
                yield client
            return
        with (
            LocalCluster(
                n_workers=1,
                threads_per_worker=usable_cores(),
                processes=False,
                dashboard_address="127.0.0.1:0",  # any free port
                memory_limit=None,
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client
