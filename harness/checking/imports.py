"""Try the imports of third-party layers and data sets in another process, before a plan imports them in this one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from harness.checking.isolated import check_in_process
from harness.core.errors import UserError


def try_imports(specs: Iterable[tuple[str, Path | None]]) -> None:
    """Ensure that importing third-party layers and data sets does not end the process.

    Other faults are ignored here: the plan reports them, with their place in the suite.

    Args:
        specs: FILE.py:CLASS or package.module:CLASS, each with the folder where its file is looked for first.

    Raises:
        UserError: an import ended its process, or did not end in time.
    """
    for spec, folder in dict.fromkeys(specs):
        ended = ""
        with contextlib.suppress(UserError):
            ended = check_in_process(spec, {}, folder, shapes=()).ended
        if ended:
            raise UserError(ended)
