"""Problems of a suite: where each is, its value, the rule and a hint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.core.errors import SuiteError
from harness.core.explain import Place
from harness.planning.strict_yaml import Document

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

    @property
    def text(self) -> str:
        """The message, after the option of the command line that caused it."""
        return self.message if self.where.origin is None else f"{self.where.origin}: {self.message}"

    def position(self, document: Document) -> tuple[int, int]:
        """Return line and column in the file; (0, 0) of an option of the command line."""
        if self.where.origin is not None:
            return 0, 0
        return (document.key_position if self.at_key else document.position)(self.where.place)


def raise_faults(document: Document, problems: Iterable[Problem]) -> None:
    """Raise one SuiteError with every problem on a line of its own, in the order of the file; without any, return."""
    ordered = sorted({(problem.position(document), problem.text) for problem in problems})
    if not ordered:
        return
    lines = [document.located(position, text) if any(position) else text for position, text in ordered]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"{document.name}: and {len(lines) - MAX_SHOWN} more"]
    raise SuiteError("\n".join(lines))
