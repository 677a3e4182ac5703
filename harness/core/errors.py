"""Errors that a user can cause, each with the exit code of the command line."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from harness.core.texts import first_few, shortened

SHOWN, SHOWN_LENGTH = 60, 80  # names, and characters of a name, in a message: names of columns may be any text
CLEARLY = 0.1  # a name that is less similar by so much than the nearest is no guess


class UserError(Exception):
    """An error that the user can correct: one message, no traceback, exit code 2 (wrong command or suite)."""

    exit_code = 2


class SuiteError(UserError):
    """The suite file is wrong; the message lists every fault as `file:line:column: value, rule, hint`."""


class Undecided(UserError):
    """Time ran out before there was an answer: this refuses nothing, and more time may give one."""

    exit_code = 4


class DataMissing(UserError):
    """A data set that the plan needs is missing; raised before any training."""

    exit_code = 3


class DataError(UserError):
    """A data file exists but is damaged, of the wrong shape, or off its lattice.

    Attributes:
        hint: options of the data set that the message proposes; empty if it proposes none.
    """

    exit_code = 3

    def __init__(self, message: str, hint: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.hint = dict(hint or {})


class Diverged(Exception):
    """Training produced a number that is not finite; the message names the step and the quantity.

    Attributes:
        curves: the training curves up to that step (see harness.training.training).
    """

    def __init__(self, message: str, curves: dict[str, list[float | None]] | None = None) -> None:
        super().__init__(message)
        self.curves = curves or {}


def guess(name: str, names: Iterable[str]) -> str:
    """Return "did you mean X?" with the names that are spelt most alike; empty if none is, or the name is a number.

    Case and leading dashes are ignored.
    """
    folded = {spelt.lower().lstrip("-"): spelt for spelt in names}
    wrong = name.lower().lstrip("-")
    close = [] if wrong.isdecimal() else difflib.get_close_matches(wrong, folded, n=3, cutoff=0.6)
    alike = [difflib.SequenceMatcher(None, match, wrong).ratio() for match in close]
    near = [folded[match] for match, ratio in zip(close, alike, strict=True) if ratio > alike[0] - CLEARLY]
    return f"did you mean {' or '.join(near)}?" if near else ""


def nearest(name: str, names: Collection[str]) -> str:
    """Return the hint to print after an unknown name: a guess, or else all names, bounded."""
    if guessed := guess(name, names):
        return guessed
    shown = [shortened(name, SHOWN_LENGTH) for name in names]
    return f"known: {first_few(shown, SHOWN)}" if names else "there are none"


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return a guess in parentheses, for a message that lists all names anyway; empty without a guess."""
    guessed = guess(name, names)
    return f" ({guessed})" if guessed else ""
