"""The machine of a record, and the rule that times of different machines never stand in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.core.kinds import kind_of
from harness.core.records import Record

ELSEWHERE = "elsewhere"
"""The status of a runtime trial in a report of another machine's times."""

Machine = tuple[str | None, ...]


def machine_of(record: Record) -> Machine:
    """Return the machine of a record: GPU, processor, cores, and the host if it is named."""
    about = record.environment
    gpu = about.get("cuda", {}).get("name")
    return gpu, about.get("cpu"), str(about.get("cores")), about.get("host")


def machine_name(record: Record) -> str | None:
    """Return the name of the GPU if one was used, else of the processor."""
    found: str | None = record.environment.get("cuda", {}).get("name") or record.environment.get("cpu")
    return found


def timing_machine(records: Iterable[Record]) -> Machine | None:
    """Return the machine that has measured most of the runtime trials, the first of equals; None if none has."""
    counts = Counter(machine_of(record) for record in records if is_timed(record))
    return counts.most_common(1)[0][0] if counts else None


def is_timed(record: Record) -> bool:
    """Return whether the record holds times of layers; one of a failed trial holds none, and fits any machine."""
    return kind_of(record.trial["kind"]).alone and bool(record.rows)


def elsewhere(record: Record, machine: Machine | None) -> str | None:
    """Return why the times of this record do not stand beside those of the machine; None if they do."""
    if machine is None or not is_timed(record) or machine_of(record) == machine:
        return None
    return (
        f"measured on another machine ({described(machine_of(record))}, not {described(machine)}): times of different "
        "machines are never pooled"
    )


def described(machine: Machine) -> str:
    """Return a machine in words."""
    gpu, cpu, cores, host = machine
    return ", ".join(filter(None, (gpu, cpu, f"{cores} cores", host)))
