"""The arguments of `harness.plan`, `harness.run` and `harness.replicate`, which are the options of their commands.

Settings, selections and resources reach the planning as the texts of the command line, such as "training.steps=100", so
that the plan can state the command that makes it again.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from harness.core.arguments import Option, Place, Whole, optional, path, read_whole, rule
from harness.core.run_options import CHECKPOINT_SECONDS, Stale, parse_bytes, parse_seconds, parse_timeout
from harness.core.settings import Flag, Settings
from harness.core.texts import control_fault
from harness.execution.executor import executor_names
from harness.planning.plan import GivenDevice
from harness.planning.suite_model import ProfileName

MERGED = Path("reports/merged")
"""Folder below which the results of merged runs and of archives are written, in a folder named after the suite."""


def texts(value: Any) -> Any:
    """Return several values or one as a tuple; raise ValueError if a text has a control character."""
    several = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for fault in filter(None, (control_fault(text) for text in several if isinstance(text, str))):
        raise ValueError(fault)
    return several


def pairs(form: Callable[[Any], str], value: Any) -> Any:
    """Return the same; of a mapping `key=value` for each key, with the form of a value."""
    if not isinstance(value, Mapping):
        return texts(value)
    try:
        return tuple(f"{key}={form(inner)}" if isinstance(key, str) else key for key, inner in value.items())
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a value of this mapping is none of a suite ({error})") from error


Strings = tuple[Annotated[str, Field(min_length=1)], ...]
Given = str | Sequence[str] | Mapping[str, Any]
Texts = Annotated[Strings, rule(texts, str | Sequence[str])]
Selection = Annotated[Strings, rule(partial(pairs, lambda value: ",".join(map(str, texts(value)))), Given)]
Values = Annotated[Strings, rule(partial(pairs, partial(json.dumps, ensure_ascii=False, allow_nan=False)), Given)]
Terms = Literal["steps", "seconds", "parameters", "width"]  # measures at which likelihoods can be compared
EqualTerms = Annotated[tuple[Terms, ...], rule(texts, str | Sequence[str])]
ExecutorName: Any = Literal[tuple(executor_names())]
Root = Annotated[Path | None, optional(path, str | Path), Option("ROOT")]  # of the data sets


class RunArguments(Settings):
    """The arguments of `harness.run` and `harness.plan`.

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
        offline: download nothing; use the data that are present.
        timeout: end a trial after this time, such as 90 (seconds) or 2h.
        memory: end a trial that uses more memory, such as 4GiB.
        checkpoint: interval between checkpoints of training, in seconds or such as 5min.
        fail_fast: stop the run at the first trial that fails.
        unchecked: run third-party layers without check-layer.
        host: name this machine in records.
        quiet: print only failures, and with the command a last line.
    """

    profile: Annotated[str, Option(choices=get_args(ProfileName))] = "quick"
    out: Annotated[Place, Option("DIR")] = Path("reports")
    device: GivenDevice = "auto"
    data: Root = None
    jobs: Whole = None
    executor: ExecutorName = "local"
    cluster: Annotated[Values, Option("KEY=VALUE")] = ()
    retry_failed: Flag = False
    stale: Stale = "keep"
    seeds: Whole = None
    only: Annotated[Selection, Option("KEY=VALUE")] = ()
    settings: Annotated[Values, Option("PATH=VALUE", ("--set",))] = ()
    layers: Annotated[Texts, Option("FILE.py:CLASS", ("--layer",))] = ()
    datasets: Annotated[Texts, Option("LABEL=FILE[:OPTIONS]", ("--dataset",))] = ()
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
        """Return the command that makes the same plan again, for a report: without folders of this machine."""
        here = partial(re.sub, r"^([^=/]*=)?/.*/", r"\1")
        stated: dict[str, Iterable[object]] = {"profile": [self.profile], "device": [device]}
        stated |= {"only": self.only, "set": self.settings}
        stated |= {"layer": map(here, self.layers), "dataset": map(here, self.datasets)}
        stated |= {"seeds": [self.seeds] if self.seeds else [], "data": ["ROOT"] if self.data else []}
        words = [word for name, values in stated.items() for value in values for word in (f"--{name}", str(value))]
        return shlex.join(["python", "-m", "harness", "run", here(suite), *words, *["--unchecked"] * self.unchecked])


class ReplicateArguments(RunArguments):
    """The arguments of `harness.replicate`.

    Attributes:
        draws: number of draws.
    """

    draws: Annotated[int, Field(ge=2, le=1000, strict=True), Option("N", read=read_whole)] = 5
