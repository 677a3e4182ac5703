"""Resources that jobs request from a cluster: the section `cluster:` of a suite, and `--cluster KEY=VALUE` over it.

They are no part of a trial, as they do not change its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from harness.core.errors import SuiteError
from harness.core.explain import explain
from harness.core.run_options import parse_seconds
from harness.core.settings import Count, Settings
from harness.planning.assignments import assigned, blamed, merged, parse_pairs
from harness.planning.suite_model import Duration, Memory

OURS = (
    *("array", "chdir", "cpus-per-task", "error", "exclusive", "export", "gres", "job-name", "mem", "nodes", "ntasks"),
    *("ntasks-per-node", "open-mode", "output", "requeue", "no-requeue", "signal", "time", "wait", "wrap"),
    *("partition", "account", "qos", "constraint"),
)
"""Options of sbatch with a key of their own here, or set by this program."""


def _word(value: str) -> str:
    """Return a value that is printable, as it becomes part of a line of a shell script."""
    if not value.strip() or not value.isprintable() or len(value) > 500:
        raise ValueError(f"{value[:40]!r} is no value of an option of sbatch; write one line of printable text")
    return value


def _option(name: str) -> str:
    if not all(part.isalnum() and part.isascii() and part.islower() for part in name.split("-")):
        raise ValueError(f"{name!r} is no long option of sbatch; write it as sbatch does, without the dashes in front")
    if name in OURS:
        raise ValueError(f"--{name} is set by this program; use the keys of cluster itself")
    return name


def _option_value(value: object) -> object:
    if value is True or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no value of an option of sbatch; write text, a whole number, or true")
    return _word(value)


def _beat(value: object) -> float:
    seconds = parse_seconds(value)
    if not 0.1 <= seconds <= 600:
        raise ValueError(f"{value!r} is not between 0.1 s and 10 min")
    return seconds


Word = Annotated[str, AfterValidator(_word)]
OptionName = Annotated[str, AfterValidator(_option)]
OptionValue = Annotated[Any, BeforeValidator(_option_value, json_schema_input_type=str | int | Literal[True])]
Beat = Annotated[float, BeforeValidator(_beat, json_schema_input_type=float | str)]


class Cluster(Settings):
    """The resources of each job, and the number of jobs at once; null: the cluster's default.

    Attributes:
        partition, account, qos, constraint: options of sbatch.
        time: of a job, rounded up to minutes.
        memory: of a job.
        cpus: of a job; null: as many as its trials have threads.
        gres: of a job; null: "gpu:1" for trials on CUDA, else none.
        throttle: jobs at once; --jobs has precedence.
        trials_per_job: in sequence; runtime trials are all in one job, on one machine.
        heartbeat: seconds between two signs of life of a job.
        options: any other long option of sbatch, such as reservation: maintenance; true for one without a value.
    """

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    time: Duration = None
    memory: Memory = None
    cpus: Count | None = None
    gres: Word | None = None
    throttle: Count | None = None
    trials_per_job: Count = 1
    heartbeat: Beat = 15.0
    options: dict[OptionName, OptionValue] = Field(default_factory=dict)

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """The device that `--device auto` means there: CUDA if jobs request GPUs."""
        return "cuda" if self.gres is not None and "gpu" in self.gres else "cpu"


def cluster_of(section: Cluster, texts: Sequence[str]) -> Cluster:
    """Return the suite's section with the `--cluster` texts over it; a SuiteError names every faulty text."""
    pairs, faults = parse_pairs("--cluster", texts, "KEY=VALUE, such as time=2h")
    content, changes = assigned((f"--cluster {text}", tuple(key.split(".", 1)), value) for text, key, value in pairs)
    try:
        cluster = Cluster.model_validate(merged(section.model_dump(exclude_unset=True), content, 2))
    except ValidationError as error:
        faults += blamed(changes, explain(error, Cluster), "--cluster")
    if faults:
        raise SuiteError("\n".join(faults))
    return cluster
