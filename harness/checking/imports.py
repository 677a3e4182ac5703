"""Try the imports of third-party layers and data sets in another process, before a plan imports them in this one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from harness.checking.isolated import check_in_process
from harness.core.errors import Undecided, UserError


def try_imports(specs: Iterable[tuple[str, Path | None]]) -> None:
    """Ensure that importing third-party layers and data sets does not end the process.

    Other faults are ignored here: the plan reports them, with their place in the suite. Each of `specs` is a
    FILE.py:CLASS or package.module:CLASS with the folder where its file is looked for first.

    Raises:
        UserError: an import ended its process.
        Undecided: an import did not end in time.
    """
    for spec, folder in dict.fromkeys(specs):
        report = None
        with contextlib.suppress(UserError):
            report = check_in_process(spec, {}, folder, shapes=(), large=False)
        if report is not None and report.ended:
            raise Undecided(report.ended) if report.overtime else UserError(report.ended)
