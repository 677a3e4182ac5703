"""The resources of jobs: the section `cluster:` of a suite, and `--cluster KEY=VALUE` over it.

They are no part of a trial, as they do not change its result.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from harness.core.settings import Count, Settings
from harness.planning.suite_model import Duration, Memory

OURS = (
    *("array", "chdir", "cpus-per-task", "error", "exclusive", "gres", "job-name", "mem", "nodes", "ntasks"),
    *("open-mode", "output", "parsable", "requeue", "no-requeue", "time", "wait", "wrap"),
    *("partition", "account", "qos", "constraint"),
)
"""Options of sbatch with a key of their own here, or set by this program."""


def _option(name: str) -> str:
    if name in OURS:
        raise ValueError(f"--{name} is set by this program; use the keys of cluster itself")
    return name


def _value(value: object) -> object:
    if value is True or (isinstance(value, (int, str)) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{value!r} is no value of an option of sbatch; write text, a whole number, or true")


OptionName = Annotated[str, AfterValidator(_option)]
OptionValue = Annotated[Any, BeforeValidator(_value, json_schema_input_type=str | int | Literal[True])]


class SlurmSection(Settings):
    """The resources of each job, and the number of jobs at once; null: the cluster's default.

    Attributes:
        partition, account, qos, constraint: options of sbatch.
        time: of a job, rounded up to minutes.
        memory: of a job.
        cpus: of a job; null: as many as its trials have threads.
        gres: of a job; null: "gpu:1" for trials on CUDA, else none.
        throttle: jobs at once; --jobs has precedence.
        trials_per_job: in sequence; runtime trials are all in one job, on one machine.
        options: any other long option of sbatch, such as reservation: maintenance; true for one without a value.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: Duration = None
    memory: Memory = None
    cpus: Count | None = None
    gres: str | None = None
    throttle: Count | None = None
    trials_per_job: Count = 1
    options: dict[OptionName, OptionValue] = Field(default_factory=dict)
