"""Run trials on the workers of a Dask cluster, which share no disk with this machine."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, ValidationError

from harness.core.errors import SuiteError, UserError
from harness.core.explain import explain
from harness.core.provenance.machine import usable_cores
from harness.core.run_options import PROJECT, RunOptions
from harness.core.settings import Settings
from harness.core.trial import Trial
from harness.execution.executor import Executor, Following
from harness.execution.local.running_reporter import RunningReporter
from harness.execution.local.slots import Slots, at_once, make_slots
from harness.planning.assignments import assigned, blamed, parse_pairs
from harness.planning.cluster import Cluster
from harness.planning.plan import GivenDevice

if TYPE_CHECKING:
    from distributed import Client

INSTALL = "pip install 'invertbench[dask]'"


def _address(value: str) -> str:
    if re.fullmatch(r"(tcp|tls|ws|wss)://\S+", value) is None:
        raise ValueError(f"{value[:80]!r} is not the address of a scheduler; write it as Dask does, tcp://HOST:PORT")
    return value


class Scheduler(Settings):
    """The values of `--cluster`.

    Attributes:
        address: of a scheduler that runs; null: workers in this process.
        data: folder of the data sets on workers; null: their $INVERTBENCH_DATA, or else that of the command.
    """

    address: Annotated[str, AfterValidator(_address)] | None = None
    data: Path | None = None


def scheduler_of(texts: Sequence[str]) -> Scheduler:
    """Return the scheduler that the `--cluster` texts describe; a SuiteError names every faulty text."""
    pairs, faults = parse_pairs("--cluster", texts, "KEY=VALUE, such as address=tcp://HOST:PORT")
    content, changes = assigned((f"--cluster {text}", (key,), value) for text, key, value in pairs)
    try:
        scheduler = Scheduler.model_validate(content)
    except ValidationError as error:
        faults += blamed(changes, explain(error, Scheduler), "--cluster")
    if faults:
        raise SuiteError("\n".join(faults))
    return scheduler


class Dask(Executor):
    """Tasks of a scheduler; --jobs limits those that run at once. They end with this command."""

    def __init__(self, jobs: int | None, resources: Cluster, texts: Sequence[str]) -> None:
        super().__init__(jobs, resources, ())
        self.scheduler = scheduler_of(texts)

    @property
    def elsewhere(self) -> int | None:
        """One core, on workers elsewhere."""
        return None if self.scheduler.address is None else 1

    def device(self, option: GivenDevice) -> GivenDevice:
        """Return the CPU for "auto" on workers elsewhere."""
        return "cpu" if option == "auto" and self.scheduler.address is not None else option

    def at_once(self, trials: Sequence[Trial]) -> int:
        """Return how many have room on the workers that there are now."""
        if self.scheduler.address is None or not trials:
            return at_once(trials, make_slots(trials, self.jobs))
        with self._client() as client:
            from harness.execution.dask.dispatch import machines

            room = sum(at_once(trials, Slots(cores=machine.threads)) for machine in machines(client).values())
        return max(1, room if self.jobs is None else min(room, self.jobs))

    def run(
        self, trials: Sequence[Trial], attached: Sequence[Trial], run_options: RunOptions, following: Following
    ) -> None:
        """Run the trials on the workers."""
        if not trials:
            return
        local = self.scheduler.address is None
        with (
            self._client() as client,
            following.reporter(len(trials)) as shown,
            RunningReporter(shown, run_options.out) as reporter,
        ):
            from harness.execution.dask.dispatch import Dispatch

            data = run_options.root if local else self.scheduler.data
            path = str(PROJECT) if local else None
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
        if self.scheduler.address is not None:
            with connected(self.scheduler.address) as client:
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
