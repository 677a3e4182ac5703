"""The trials that the options of `run` and `plan` ask for, and the folder of their data."""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.errors import DataMissing, UserError
from harness.core.settings import DataRef
from harness.core.third_party import third_party_specs
from harness.core.trial import Trial
from harness.execution.agenda import Digests, Entry, agenda
from harness.planning.cluster import Cluster
from harness.planning.plan import Plan
from harness.planning.suite_base import SuiteFile

Checksums = Mapping[DataRef, str | None]


@dataclass(frozen=True)
class Request:
    """The trials that a command line asks for."""

    plan: Plan  # the trials of the profile that `--only` selects
    folder: Path  # OUT/<suite>
    cluster: Cluster | None  # the resources that jobs request; None: trials run on this machine

    def with_checksums(self, checksums: Checksums) -> Request:
        """Return the same request with the checksums of the data, which are part of a trial."""
        return replace(self, plan=self.plan.with_checksums(checksums))

    def entries(self, digests: Digests | None = None) -> list[Entry]:
        """Return the trials with their states (see `agenda`)."""
        return agenda(self.plan, self.folder, digests)

    def at_once(self, trials: Sequence[Trial], jobs: int | None) -> int:
        """Return how many of these trials run at once."""
        from harness.execution.local.slots import at_once, make_slots

        if self.cluster is None:
            return at_once(trials, make_slots(trials, jobs))
        return max(1, min(len(trials), self.cluster.throttle or len(trials)))


def make_request(suite: SuiteFile, args: Namespace) -> Request:
    """Return the request that the options of `add_plan_options` describe; raise a UserError if they cannot be met."""
    from harness.checking.imports import try_imports
    from harness.planning.overrides import run_command

    given = [spec for name in args.layers for spec in third_party_specs("layer", name)]
    try_imports([*suite.third_party, *((spec, suite.folder) for spec in given)])
    cluster = _cluster(suite, args)
    device, elsewhere = args.device, None
    if cluster is not None:  # cluster nodes may have devices that this machine lacks
        elsewhere = cluster.cpus or 1
        device = cluster.device if args.device == "auto" else args.device
    changes = {name: getattr(args, name) for name in ("only", "settings", "layers", "seeds")}
    plan, trials = suite.check().plan(args.profile, device, **changes, jobs=args.jobs, elsewhere=elsewhere)
    if args.only:
        plan = plan.limited(trials)
    command = run_command(
        args.suite, args.profile, plan.device, **changes, data=args.data, unchecked=getattr(args, "unchecked", False)
    )
    return Request(plan.model_copy(update={"command": command}), args.out / plan.suite, cluster)


def _cluster(suite: SuiteFile, args: Namespace) -> Cluster | None:
    from harness.planning.cluster import cluster_of

    if args.executor == "slurm":
        cluster = cluster_of(suite.cluster, args.cluster)
        return cluster if args.jobs is None else cluster.model_copy(update={"throttle": args.jobs})
    if args.cluster:
        raise UserError(f"--cluster {args.cluster[0]}: the option needs --executor slurm; give both or neither")
    return None


def data_root(given: Path | None) -> Path | None:
    """Return `--data`, else $INVERTBENCH_DATA, else None; raise DataMissing if a named root does not exist."""
    variable = os.environ.get("INVERTBENCH_DATA")
    root = given or (Path(variable) if variable else None)
    if root is not None and not root.is_dir():
        name = "--data" if given else "$INVERTBENCH_DATA"
        raise DataMissing(f"{name} {root}: no such folder; give the folder that holds the data sets")
    return root.resolve() if root else None


def known_checksums(folder: Path) -> dict[DataRef, str | None]:
    """Return the checksums of the folder's last plan, for data sets that are not checked again now."""
    with contextlib.suppress(UserError):
        trials = Plan.load(folder).trials
        return {data.arrays: data.checksum for trial in trials for data in trial.data_sets}
    return {}
