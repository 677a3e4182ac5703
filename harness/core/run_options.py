"""Options of a run: folders, limits, the treatment of earlier results. None of them is part of a trial's id, as none
changes the result of a trial that ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.core.explain import shown

Stale = Literal["keep", "rerun"]
"""Treatment of records and checkpoints of changed source: keep them, or run their trials again."""

PROJECT = Path(__file__).resolve().parents[2]
"""The folder that holds the packages: a checkout, or the place of installation."""

CHECKPOINT_SECONDS = 60.0
CHECK_SECONDS = 300.0  # limit for all rules of check-layer on one layer

PASSED, UNCHECKED, NOT_FULLY_CHECKED = "passed", "unchecked", "not fully checked:"

MOST = 1e18  # of a number that is no text
MOST_SECONDS = 1e9  # a process cannot wait for longer than some 9e9

_SECONDS = {"": 1, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "hours": 3600, "d": 86400, "days": 86400}
_BYTES = {
    **dict.fromkeys(("", "B"), 1),
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGT", start=1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", start=1)},
}
MOST_BYTES = 1 << 50  # systems take limits below 2^63
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*")


@dataclass(frozen=True)
class RunOptions:
    """Options that all trials of a run share.

    `checks` is the outcome of check-layer for third-party layers, by `LayerRef.check_key`: PASSED, UNCHECKED if the
    layer was not checked, NOT_FULLY_CHECKED with the rules that were not answered, or the reason for which it was
    refused; a refused layer must not run.
    """

    out: Path  # the suite's folder, OUT/<suite>
    root: Path | None = None  # of the data sets that are not installed with a package
    timeout: float | None = None  # seconds after which a trial's processes are ended
    memory: int | None = None  # bytes that a trial's processes may hold together
    checkpoint: float = CHECKPOINT_SECONDS  # between two checkpoints of training; 0: one after every step
    stale: Stale = "keep"
    host: bool = False  # whether records name the machine
    checks: Mapping[str, str] = field(default_factory=dict)


def _quantity(value: object, units: Mapping[str, int], rule: str) -> float:
    """Return a number with a unit, or without; raise ValueError with the rule."""
    number = type(value) in (int, float) and 0 <= value <= MOST  # type: ignore[operator]
    text = f"{value:f}" if number else value
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) and len(text) <= 40 else None
    if match is None or match[2] not in units:
        raise ValueError(f"{shown(value)} is {rule}")
    return float(match[1]) * units[match[2]]


def parse_seconds(value: object) -> float:
    """Return the seconds of "90", "90 s", "30 min", "2h", "1 d" or a number; raise ValueError with the problem."""
    rule = "not a time; write seconds, or a number with s, min, h or d, such as '30 min'"
    seconds = _quantity(value, _SECONDS, rule)
    if seconds > MOST_SECONDS:
        raise ValueError(f"{shown(value)} is more than 30 years; give less, or no limit")
    return seconds


def parse_timeout(value: object) -> float:
    """Return the same as `parse_seconds`, but require more than 0."""
    seconds = parse_seconds(value)
    if seconds <= 0:
        raise ValueError(f"{value!r} leaves a trial no time; give more than 0 seconds, or no timeout")
    return seconds


def parse_bytes(value: object) -> int:
    """Return the bytes of "4GiB", "500 MB" or a number of bytes; raise ValueError with the problem."""
    rule = "not a memory size; write a number with MiB, GiB, MB or GB, such as '4GiB'"
    amount = round(_quantity(value, _BYTES, rule))
    if amount < 1 << 20:
        raise ValueError(f"{value!r} is less than 1 MiB, too little for any trial; write an amount such as '4GiB'")
    if amount > MOST_BYTES:
        raise ValueError(f"{value!r} is more than {shown_bytes(MOST_BYTES)}, and so no limit; write one such as '4GiB'")
    return amount


def shown_bytes(amount: float) -> str:
    """Return an amount as text: "4.0 GiB"."""
    for power, unit in ((3, "GiB"), (2, "MiB")):
        if amount >= 1024**power:
            return f"{amount / 1024**power:.1f} {unit}"
    return f"{amount / 1024:.0f} KiB"


def shown_seconds(seconds: float) -> str:
    """Return a duration as text: "45 s", "12 min", "3 h 20 min", "2 d 4 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
