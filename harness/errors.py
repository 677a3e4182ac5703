"""Errors that a user can cause, each with the exit code that the command line ends with."""


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
        curves: the training curves up to there (see harness.trials.training).
    """

    def __init__(self, message: str, curves: dict[str, list[float | None]] | None = None) -> None:
        super().__init__(message)
        self.curves = curves or {}
