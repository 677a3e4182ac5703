"""Problems of a suite: where each is, its value, the rule and the way out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.core.errors import SuiteError
from harness.core.explain import Place
from harness.planning.strict_yaml import Document, Fault

MAX_SHOWN = 50


@dataclass(frozen=True)
class Where:
    """The place of a setting in the file, or the command line option that set it."""

    place: Place
    origin: str | None = None

    def says(self, message: str, at_key: bool = False) -> Problem:
        """Return a problem at this place; `at_key` points at the key rather than at the value."""
        return Problem(self, message, at_key)

    def at(self, place: Place) -> Where:
        """Return a place inside this one."""
        return Where((*self.place, *place), self.origin)


@dataclass(frozen=True)
class Problem:
    """One reason why a suite cannot run, and where it is."""

    where: Where
    message: str
    at_key: bool = False

    def fault(self, document: Document) -> Fault:
        """Return the problem with its line and column."""
        if self.where.origin is not None:
            return Fault(0, 0, f"{self.where.origin}: {self.message}")
        find = document.key_position if self.at_key else document.position
        line, column = find(self.where.place)
        return Fault(line, column, self.message)


def raise_faults(document: Document, faults: Iterable[Fault | Problem]) -> None:
    """Raise one SuiteError with every fault on a line of its own, in the order of the file; without any, return."""
    ordered = sorted({fault.fault(document) if isinstance(fault, Problem) else fault for fault in faults})
    if not ordered:
        return
    lines = list(map(document.located, ordered))
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"{document.name}: and {len(lines) - MAX_SHOWN} more"]
    raise SuiteError("\n".join(lines))
