"""Errors that a user can cause, each with the exit code that the command line ends with."""

import difflib
from collections.abc import Collection, Iterable


class UserError(Exception):
    """Something the user can mend: one message, no traceback, exit code 2 (the command or the suite is wrong)."""

    exit_code = 2


class SuiteError(UserError):
    """The suite file is wrong; the message lists every fault as `file:line:column: what, rule, way out`."""


class DataMissing(UserError):
    """A data set that the plan needs is not there; found before any training."""

    exit_code = 3


class DataError(UserError):
    """A data file is there but is not what it should be: damaged, of the wrong shape, off its lattice."""

    exit_code = 3


class Diverged(Exception):
    """Training left the finite numbers; the message says at which step and in what.

    Attributes:
        curves: the training curves up to there (see harness.training.training).
    """

    def __init__(self, message: str, curves: dict[str, list[float | None]] | None = None) -> None:
        super().__init__(message)
        self.curves = curves or {}


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are spelt nearly like this one, the nearest first; upper and lower case are alike."""
    folded = {one.lower(): one for one in known}
    return [folded[one] for one in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)]


def nearest(name: str, known: Collection[str]) -> str:
    """What to say after an unknown name: the nearest known ones, or else all of them."""
    close = close_names(name, known)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(known)}" if known else "there are none"
