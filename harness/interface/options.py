"""The arguments of `harness.plan`, `harness.run` and `harness.replicate`, which are the options of their commands.

Settings, selections and resources reach the planning as the texts of the command line, such as "training.steps=100", so
that the plan can state the command that makes it again.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from harness.core.arguments import Option, Place, Whole, optional, path, read_whole, rule
from harness.core.explain import shown
from harness.core.run_options import CHECKPOINT_SECONDS, Stale, parse_bytes, parse_seconds, parse_timeout
from harness.core.settings import Flag, Settings
from harness.core.texts import control_fault
from harness.execution.executor import executor_names
from harness.planning.plan import GivenDevice
from harness.planning.suite_model import ProfileName

Texts = str | Sequence[str] | Mapping[str, Any]
"""`key=value` texts as on the command line, or a mapping."""

ExecutorName: Any = Literal[tuple(executor_names())]

Terms = Literal["steps", "seconds", "parameters", "width"]
"""The measures at which likelihoods can be compared."""

MERGED = Path("reports/merged")
"""Folder below which the results of merged runs and of archives are written, in a folder named after the suite."""


def texts(value: Any) -> tuple[str, ...]:
    """Return one text or several as a tuple."""
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, (list, tuple)):
        raise ValueError(f"expected a text or a list of texts, got {shown(value)}")
    for text in several:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"expected a text, got {shown(text)}")
        if (fault := control_fault(text)) is not None:
            raise ValueError(fault)
    return tuple(several)


def pairs(form: Callable[[str, Any], str], value: Any) -> tuple[str, ...]:
    """Return texts; of a mapping `key=value` for each key, with the form of a value."""
    if not isinstance(value, Mapping):
        return texts(value)
    return tuple(f"{key}={form(key, inner)}" for key, inner in zip(texts(list(value)), value.values(), strict=True))


def in_yaml(key: str, value: Any) -> str:
    """Return a value of a suite as a text that strict YAML reads as this value."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "give numbers, texts, lists or mappings"
        raise ValueError(f"{key}: {shown(value)} is no value of a suite; {hint}") from error


def selected(key: str, value: Any) -> str:
    """Return the values of `only` that a key selects, as a text."""
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several or not all(isinstance(part, (str, int)) for part in several):
        raise ValueError(f"{key}: expected a name or a number, or a list of one or more, got {shown(value)}")
    return ",".join(map(str, several))


class Arguments(Settings):
    """The arguments that say which trials there are, and where.

    Attributes:
        profile: size of the suite.
        out: folder of the reports; that of this suite is below it.
        device: where trials compute.
        data: folder of the data sets; without it, $INVERTBENCH_DATA.
        jobs: trials at once; by default as many as there is room for.
        executor: executor of the trials.
        cluster: a setting of the executor slurm or dask, such as partition=gpu or address=tcp://HOST:PORT; in Python
            also a mapping, {"time": "2h"}.
        retry_failed: also run failed trials again; by default only interrupted ones.
        stale: use records of changed source code, or run their trials again.
        seeds: number of seeds, in place of the profile's.
        only: run and report only a layer, dataset, seed, repetition or claim, such as layer=butterfly; in Python also
            a mapping, {"layer": ["butterfly", "conv1x1"]}.
        settings: change a setting, such as training.steps=100 or layers.butterfly.options.levels=3; in Python also a
            mapping, {"training.steps": 100}.
        layers: add a third-party layer as a row, FILE.py:CLASS.
        datasets: add a file or folder as a data set, LABEL=FILE, or with options of the data set
            LABEL=FILE:option=value,option=value.
    """

    profile: Annotated[str, Option(choices=get_args(ProfileName))] = "quick"
    out: Annotated[Place, Option("DIR")] = Path("reports")
    device: GivenDevice = "auto"
    data: Annotated[Path | None, optional(path, str | Path), Option("ROOT")] = None
    jobs: Whole = None
    executor: ExecutorName = "local"
    cluster: Annotated[tuple[str, ...], rule(partial(pairs, in_yaml), Texts), Option("KEY=VALUE")] = ()
    retry_failed: Flag = False
    stale: Stale = "keep"
    seeds: Whole = None
    only: Annotated[tuple[str, ...], rule(partial(pairs, selected), Texts), Option("KEY=VALUE")] = ()
    settings: Annotated[tuple[str, ...], rule(partial(pairs, in_yaml), Texts), Option("PATH=VALUE", ("--set",))] = ()
    layers: Annotated[tuple[str, ...], rule(texts, str | Sequence[str]), Option("FILE.py:CLASS", ("--layer",))] = ()
    datasets: Annotated[
        tuple[str, ...], rule(texts, str | Sequence[str]), Option("LABEL=FILE[:OPTIONS]", ("--dataset",))
    ] = ()

    def command(self, suite: str, device: str) -> str:
        """Return the command that makes the same plan again, for a report: without folders of this machine."""
        layers = map(_name, self.layers)
        datasets = (f"{label}={_name(place)}" for label, _, place in (text.partition("=") for text in self.datasets))
        repeated = {"--only": self.only, "--set": self.settings, "--layer": layers, "--dataset": datasets}
        options = ["--profile", self.profile, "--device", device]
        options += [word for option, values in repeated.items() for value in values for word in (option, value)]
        options += [] if self.seeds is None else ["--seeds", str(self.seeds)]
        options += [] if self.data is None else ["--data", "ROOT"]
        return shlex.join(["python", "-m", "harness", "run", _name(suite), *options])


def _name(place: str) -> str:
    return Path(place).name if Path(place).is_absolute() else place


class RunArguments(Arguments):
    """The arguments of `harness.run`.

    Attributes:
        offline: download nothing; use the data that are present.
        timeout: end a trial after this time, such as 90 (seconds) or 2h.
        memory: end a trial that uses more memory, such as 4GiB.
        checkpoint: interval between checkpoints of training, in seconds or such as 5min.
        fail_fast: stop the run at the first trial that fails.
        unchecked: run third-party layers without check-layer.
        host: name this machine in records.
        quiet: print only failures, and with the command a last line.
    """

    offline: Flag = False
    timeout: Annotated[float | None, optional(parse_timeout, float | str), Option("TIME")] = None
    memory: Annotated[int | None, optional(parse_bytes, int | str), Option("SIZE")] = None
    checkpoint: Annotated[float, rule(parse_seconds, float | str), Option("TIME")] = CHECKPOINT_SECONDS
    fail_fast: Flag = False
    unchecked: Flag = False
    host: Flag = False
    quiet: Annotated[Flag, Option(flags=("-q", "--quiet"))] = False

    def tell(self, line: str) -> None:
        """Print a line, unless the run is quiet."""
        if not self.quiet:
            print(line, flush=True)

    def command(self, suite: str, device: str) -> str:
        """Return the command, and that it checks no layer."""
        return super().command(suite, device) + " --unchecked" * self.unchecked


class ReplicateArguments(RunArguments):
    """The arguments of `harness.replicate`.

    Attributes:
        draws: number of draws.
    """

    draws: Annotated[int, Field(ge=2, le=1000, strict=True), Option("N", read=read_whole)] = 5
